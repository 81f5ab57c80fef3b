"""Compiled kernels on a device, through CuPy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import cupy

from cuzk_engine.devices.cuda.compiler import Program, build

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def architecture() -> str:
    """Of the current device, as "sm_90"."""
    return f"sm_{cupy.cuda.Device().compute_capability}"


class Kernels:
    """Loads programs when they are first used. One object a device; not for several threads at once.

    ``cache`` is the folder of compiled kernels, None to compile anew.
    """

    def __init__(self, cache: Path | None) -> None:
        self._cache = cache
        self._architecture = architecture()
        self._modules: dict[Program, Any] = {}
        self._functions: dict[tuple[Program, str], Any] = {}
        self.reports: dict[Program, str] = {}

    def prepare(self, programs: Iterable[Program], done: Callable[[Program], None] | None = None) -> None:
        """Compiles what is not in the cache, several programs at a time; ``done`` is called after each, here."""
        if self._cache is None:
            return
        wanted = list(dict.fromkeys(programs))
        with ThreadPoolExecutor(max_workers=min(len(os.sched_getaffinity(0)), 16)) as pool:
            running = {pool.submit(build, p, self._architecture, self._cache): p for p in wanted}
            for future in as_completed(running):
                future.result()
                if done is not None:
                    done(running[future])

    def function(self, program: Program, name: str, shared: int = 0) -> Any:
        """A kernel of ``program``; ``shared`` is the most dynamic shared memory a launch will ask for, in bytes."""
        found = self._functions.get((program, name))
        if found is None:
            module = self._modules.get(program)
            if module is None:
                cubin, self.reports[program] = build(program, self._architecture, self._cache)
                module = cupy.cuda.function.Module()
                module.load(cubin)
                self._modules[program] = module
            found = module.get_function(name)
            self._functions[program, name] = found
        if shared > 48 * 1024:
            cupy.cuda.driver.funcSetAttribute(found.ptr, _MAX_DYNAMIC_SHARED, shared)
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
