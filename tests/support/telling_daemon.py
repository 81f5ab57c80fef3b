"""The daemon, which writes into its log who gives the arrays of its event loop their memory."""

import asyncio
import logging
import sys

from cuzk_engine.daemon.supervisor import Supervisor

_start = Supervisor.start


def _tell() -> None:
    from numpy._core.multiarray import get_handler_name

    logging.getLogger("cuzk").info("arrays: %s", get_handler_name())


def _start_and_tell(self: Supervisor) -> None:
    _start(self)
    asyncio.get_running_loop().call_soon(_tell)


if __name__ == "__main__":
    from cuzk_engine.daemon.main import main

    Supervisor.start = _start_and_tell  # type: ignore[method-assign]
    sys.exit(main())
