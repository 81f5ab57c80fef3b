"""The daemon, with a watchdog that looks ten times as often and so waits a tenth of the time."""

import sys

from cuzk_engine.daemon import watchdog

vars(watchdog).update(LOOK_SECONDS=0.1, FIRST_WORD=3000)

if __name__ == "__main__":
    from cuzk_engine.daemon.main import main

    sys.exit(main())
