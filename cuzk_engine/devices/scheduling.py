"""Which threads of a process run first where a GPU waits for one of them.

Evaluation, checks and copies keep every processor busy. A thread that wakes because the GPU has finished something, and
launches what comes next, would otherwise wait for the end of somebody's time slice, 3 ms and more, with the GPU idle.
"""

from __future__ import annotations

import logging
import os
from typing import Final

from cuzk_engine import native

log = logging.getLogger(__name__)

_POOL_NICENESS: Final = 10  # above the process's: a tenth of the weight of a thread that drives a device
_LEAST_PRIORITY: Final = 19
_SLICE_NS: Final = 100_000  # the shortest that Linux gives


def drive_a_gpu() -> None:
    """For the thread that opens a GPU: it and those that it starts run before the native library's pool. Changes
    nothing where the system does not allow it."""
    niceness = min(os.getpriority(os.PRIO_PROCESS, 0) + _POOL_NICENESS, _LEAST_PRIORITY)
    if refused := native.library().run_before_pool(niceness, _SLICE_NS):
        log.info("the threads that drive the GPU have no priority over those that compute: %s", os.strerror(refused))
