"""Kernels as machine code, through a cache whose key covers everything the result depends on.

The key of a program is a hash over the text of its source and of every header it can reach, the options, the
architecture and the compiler's version. A changed header can therefore never run stale code.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cuzk_engine.devices.cuda import nvrtc
from cuzk_engine.devices.cuda.kernel_cache import Entry, KernelCache

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
_COMMON = ("--std=c++17", "--device-as-default-execution-space", "-DCUZK_TARGET_CUDA=1", "--ptxas-options=-v")


@dataclass(frozen=True, slots=True)
class Program:
    """One source of kernels/ with its macros: ``("msm/accumulate.cu", ("-DCUZK_CURVE=Bls12_381",))``."""

    source: str
    options: tuple[str, ...] = ()


def kernels_folder() -> Path:
    """kernels/ of the checkout, or the copy installed inside the package."""
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "_kernels", package.parent / "kernels"):
        if (folder / "ff" / "fp_cuda.hpp").is_file():
            return folder
    raise FileNotFoundError(f"kernels/ not found beside {package}: reinstall cuzk")


def read_sources(root: Path, source: str) -> tuple[str, dict[str, str]]:
    """The text of ``source`` and of all headers it reaches, by path relative to ``root``. Include lines are rewritten
    to those paths, because NVRTC matches names of headers as they are written."""
    texts: dict[str, str] = {}

    def visit(path: PurePosixPath) -> None:
        if str(path) in texts:
            return
        texts[str(path)] = ""  # seen: #pragma once headers may reach each other
        text = (root / path).read_text()

        def replace(match: re.Match[str]) -> str:
            target = PurePosixPath(os.path.normpath(path.parent / match[1]))
            if not (root / target).is_file():
                return match[0]  # a system header behind a condition
            visit(target)
            return f'#include "{target}"'

        texts[str(path)] = _INCLUDE.sub(replace, text)

    visit(PurePosixPath(source))
    main = texts.pop(source)
    return main, texts


def key_of(main: str, headers: dict[str, str], options: Sequence[str], compiler: str) -> str:
    """``compiler``: what ``nvrtc.identity`` says."""
    digest = hashlib.sha256()
    parts = [main, *(f"{name}\0{text}" for name, text in sorted(headers.items())), *options, compiler]
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _Job:
    """Everything that a compilation depends on."""

    program: Program
    main: str
    headers: dict[str, str]
    options: tuple[str, ...]

    @classmethod
    def of(cls, program: Program, architecture: str, root: Path | None) -> _Job:
        main, headers = read_sources(root or kernels_folder(), program.source)
        return cls(program, main, headers, (*_COMMON, f"--gpu-architecture={architecture}", *program.options))

    @property
    def key(self) -> str:
        return key_of(self.main, self.headers, self.options, nvrtc.identity())

    def run(self) -> Entry:
        result = nvrtc.compile_cubin(self.program.source, self.main, self.headers, self.options)
        return Entry(result.cubin, result.log)


def is_cached(program: Program, architecture: str, cache: Path, root: Path | None = None) -> bool:
    """Whether ``build`` would find the result in ``cache``. Raises NvrtcError where there is no NVRTC, on whose version
    that depends."""
    return KernelCache(cache).has(_Job.of(program, architecture, root).key)


def build(program: Program, architecture: str, cache: Path | None, root: Path | None = None) -> tuple[bytes, str]:
    """The cubin of ``program`` for ``architecture`` ("sm_90") and the compiler's report of registers and spills.
    ``cache``: the folder of what was compiled before, None to compile anew. Raises NvrtcError."""
    job = _Job.of(program, architecture, root)
    if cache is None:
        entry = job.run()
    else:
        store, key = KernelCache(cache), job.key
        found = store.get(key)
        entry = found or job.run()
        if found is None:
            store.put(key, entry)
    return entry.cubin, entry.report


@dataclass(frozen=True, slots=True)
class Usage:
    """What one kernel takes, as ptxas reports it; spills of the functions that it calls are in, and the deepest
    stack."""

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int


_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_STACK = re.compile(r"(\d+) bytes cumulative stack size")


def usage(report: str) -> dict[str, Usage]:
    """Registers, stack and spills of every kernel in a compiler report. A kernel's own lines come first, then those of
    the functions that it calls."""
    found: dict[str, Usage] = {}
    for part in re.split("(?=Compiling entry function)", report):
        entry, registers = _ENTRY.match(part), _USED.search(part)
        if entry is None or registers is None:
            continue
        frames = [tuple(map(int, frame.groups())) for frame in _FRAME.finditer(part)]
        stack, shared = _STACK.search(part), _SHARED.search(part)
        found[entry[1]] = Usage(
            int(registers[1]),
            int(stack[1]) if stack else max((frame[0] for frame in frames), default=0),
            sum(frame[1] for frame in frames),
            sum(frame[2] for frame in frames),
            int(shared[1]) if shared else 0,
        )
    return found
