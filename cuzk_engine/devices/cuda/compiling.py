"""Compiling many programs at a time, before they are needed, with progress. Knows no CuPy."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from cuzk_engine.devices.cuda.compiler import Program, build, is_cached

Progress = Callable[[str, int, int], None]
"""(architecture, compiled so far, of how many); called in the thread that asked, before the first and after each."""

Result = tuple[bytes, str]

_MOST_THREADS: Final = 16  # a compilation takes up to 300 MB
_POLL_SECONDS: Final = 0.1


def progress_text(architecture: str, done: int, total: int) -> str:
    """What users read while kernels are compiled."""
    return f"compiling GPU kernels for {architecture} ({done} of {total})"


def missing(programs: Iterable[Program], architecture: str, cache: Path | None) -> list[Program]:
    """Those, each once, that are not in ``cache``. Raises NvrtcError where there is no NVRTC."""
    wanted = dict.fromkeys(programs)
    return [p for p in wanted if cache is None or not is_cached(p, architecture, cache)]


def compile_all(
    programs: Iterable[Program],
    architecture: str,
    cache: Path | None,
    progress: Progress | None = None,
    check: Callable[[], None] | None = None,
) -> dict[Program, Result]:
    """Builds ``programs`` on as many threads as there are cores. ``check`` is called now and then, and what it raises
    ends the wait at once: a compilation that runs cannot be stopped, so its thread ends by itself, and what it made is
    in the cache for the next time. Raises NvrtcError for the first that does not compile."""
    wanted = list(dict.fromkeys(programs))
    waiting: queue.SimpleQueue[Program] = queue.SimpleQueue()
    for program in wanted:
        waiting.put(program)
    ended: queue.SimpleQueue[tuple[Program, Result | BaseException]] = queue.SimpleQueue()
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            try:
                program = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                ended.put((program, build(program, architecture, cache)))
            except BaseException as error:
                ended.put((program, error))

    results: dict[Program, Result] = {}
    try:
        if progress is not None:
            progress(architecture, 0, len(wanted))
        for number in range(min(len(os.sched_getaffinity(0)), _MOST_THREADS, len(wanted))):
            threading.Thread(target=work, name=f"compiler {number}", daemon=True).start()
        while len(results) < len(wanted):
            if check is not None:
                check()
            try:
                program, result = ended.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            if isinstance(result, BaseException):
                raise result
            results[program] = result
            if progress is not None:
                progress(architecture, len(results), len(wanted))
    finally:
        stop.set()
    return results
