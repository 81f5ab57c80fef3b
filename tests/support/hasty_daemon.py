"""The daemon, with a watchdog that looks ten times as often, and waits a tenth of the time or less."""

import sys

from cuzk_engine.daemon import restarts, watchdog

vars(watchdog).update(LOOK_SECONDS=0.1, FIRST_WORD=3000, OPENING=30, STALLED=10)
vars(restarts).update(PATIENCE=5.0)

if __name__ == "__main__":
    from cuzk_engine.daemon.main import main

    sys.exit(main())
