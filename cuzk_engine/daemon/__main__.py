"""``python -m cuzk_engine.daemon``."""

import sys

from cuzk_engine.daemon.main import main

if __name__ == "__main__":
    sys.exit(main())
