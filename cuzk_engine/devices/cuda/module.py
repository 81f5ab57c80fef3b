"""Compiled kernels on a device, through CuPy."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import cupy

from cuzk_engine.devices.base import EventSink, Owner
from cuzk_engine.devices.cuda.compiler import Program, build
from cuzk_engine.devices.cuda.compiling import Progress, Result, compile_all, missing
from cuzk_engine.events import Kind, Span, host_lane

log = logging.getLogger(__name__)

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_NOBODY = Owner()
_UNASKED_SHARED = 48 << 10  # dynamic shared memory that needs no permission


def architecture() -> str:
    """Of the current device, as "sm_90"."""
    return f"sm_{cupy.cuda.Device().compute_capability}"


class Kernels:
    """Loads programs when they are first used. One object a device; not for several threads at once.

    ``cache`` is the folder of compiled kernels, None to compile anew. ``device``: its name in the span that ``sink``
    gets of what had to be compiled; ``progress`` hears of each program.
    """

    def __init__(
        self, cache: Path | None, device: str = "", sink: EventSink | None = None, progress: Progress | None = None
    ) -> None:
        self._cache, self._device, self._sink, self._progress = cache, device, sink, progress
        self._architecture = architecture()
        self._built: dict[Program, Result] = {}
        self._modules: dict[Program, Any] = {}
        self._functions: dict[tuple[Program, str], Any] = {}
        self._shared: dict[tuple[Program, str], int] = {}
        self.reports: dict[Program, str] = {}

    def prepare(
        self, programs: Iterable[Program], owner: Owner = _NOBODY, check: Callable[[], None] | None = None
    ) -> int:
        """Compiles what is neither loaded nor in the cache, several programs at a time; returns how many that were.
        ``owner``: for whom; ``check`` raises when it is not wanted any more. Raises NvrtcError."""
        known = self._modules.keys() | self._built.keys()
        wanted = missing((p for p in programs if p not in known), self._architecture, self._cache)
        if not wanted:
            return 0
        start = time.monotonic_ns()
        words = f"{self._device}: compiling {len(wanted)} GPU kernels for {self._architecture}; this happens once"
        log.info("%s", words)
        try:
            self._built.update(compile_all(wanted, self._architecture, self._cache, self._progress, check))
        finally:
            if self._sink is not None:
                lane = host_lane(owner.worker)
                end = time.monotonic_ns()
                self._sink(Span(start, end, self._device, lane, Kind.COMPILE, owner.job, owner.partition, owner.worker))
        return len(wanted)

    def function(self, program: Program, name: str, shared: int = 0) -> Any:
        """A kernel of ``program``; ``shared`` is the most dynamic shared memory a launch will ask for, in bytes."""
        found = self._functions.get((program, name))
        if found is None:
            module = self._modules.get(program)
            if module is None:
                built = self._built.pop(program, None) or build(program, self._architecture, self._cache)
                cubin, self.reports[program] = built
                module = cupy.cuda.function.Module()
                module.load(cubin)
                self._modules[program] = module
            found = module.get_function(name)
            self._functions[program, name] = found
        if shared > self._shared.get((program, name), _UNASKED_SHARED):
            cupy.cuda.driver.funcSetAttribute(found.ptr, _MAX_DYNAMIC_SHARED, shared)
            self._shared[program, name] = shared
        return found

    def launch(
        self,
        program: Program,
        name: str,
        grid: int | tuple[int, ...],
        block: int,
        arguments: Sequence[Any],
        shared: int = 0,
    ) -> None:
        """Enqueues on CuPy's current stream. Integers must be NumPy scalars of the kernel's types; arrays are
        CuPy's."""
        shape = (grid,) if isinstance(grid, int) else grid
        self.function(program, name, shared)(shape, (block,), tuple(arguments), shared_mem=shared)
