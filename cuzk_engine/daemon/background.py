"""Work of the supervisor that nobody waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger("cuzk")


class Background:
    """Keeps what was started alive until it has ended: the loop itself has only weak references."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def every(seconds: float, work: Callable[[], object]) -> None:
    """Calls ``work`` for ever. A fault in it is logged and does not end it."""
    while True:
        await asyncio.sleep(seconds)
        try:
            work()
        except Exception:
            log.exception("a regular task of the daemon failed")
