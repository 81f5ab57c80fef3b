"""NVRTC through ctypes: CUDA C++ to machine code without nvcc, without a GPU and without CuPy."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

_ARCHITECTURE: Final = "--gpu-architecture="


class NvrtcError(Exception):
    """NVRTC is missing, or refused a source; the message holds the compiler's log."""


@dataclass(frozen=True, slots=True)
class Compiled:
    cubin: bytes
    log: str


def _candidates() -> list[str]:
    """The library of NVIDIA's wheel, wherever Python finds it, then the system's."""
    found: list[str] = []
    for package in ("nvidia.cu13", "nvidia.cuda_nvrtc"):
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for folder in (spec.submodule_search_locations or []) if spec else []:
            found += sorted(str(p) for p in Path(folder, "lib").glob("libnvrtc.so.*[0-9]"))
    found += ["libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13", "libnvrtc.so.12"]
    return found


@cache
def _library() -> ctypes.CDLL:
    for name in _candidates():
        try:
            # NVRTC opens its builtins by bare name, which finds what is loaded already.
            for builtins in sorted(Path(name).parent.glob("libnvrtc-builtins.so.*")) if "/" in name else []:
                ctypes.CDLL(str(builtins))
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise NvrtcError("NVRTC (libnvrtc.so.13) not found: install nvidia-cuda-nvrtc or the CUDA toolkit")


def version() -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
    return major.value, minor.value


@cache
def architectures() -> tuple[int, ...]:
    """What the library compiles for: 75, 80, … as in sm_75."""
    count = ctypes.c_int()
    _check(_library().nvrtcGetNumSupportedArchs(ctypes.byref(count)), "nvrtcGetNumSupportedArchs")
    found = (ctypes.c_int * count.value)()
    _check(_library().nvrtcGetSupportedArchs(found), "nvrtcGetSupportedArchs")
    return tuple(sorted(found))


def refusal(architecture: str) -> str | None:
    """Why kernels cannot be compiled for "sm_90", one sentence; None where they can."""
    try:
        known = architectures()
    except NvrtcError as error:
        return str(error)
    number = architecture.removeprefix("sm_")
    if number.isdecimal() and int(number) in known:
        return None
    words = (
        f"NVRTC {'.'.join(map(str, version()))} compiles for sm_{known[0]} to sm_{known[-1]}, not for {architecture}"
    )
    newer = number.isdecimal() and int(number) > known[0]
    return f"{words}: {'install a newer nvidia-cuda-nvrtc' if newer else 'the card is too old for it'}"


class _SymbolOrigin(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


@cache
def identity() -> str:
    """Version and the library's size in bytes: releases of one version differ in their code."""
    origin = _SymbolOrigin()
    address = ctypes.cast(_library().nvrtcVersion, ctypes.c_void_p)
    found = ctypes.CDLL(None).dladdr(address, ctypes.byref(origin))
    size = Path(os.fsdecode(origin.file)).stat().st_size if found and origin.file else 0
    return f"NVRTC {'.'.join(map(str, version()))} {size}"


def _check(code: int, what: str) -> None:
    if code:
        function = _library().nvrtcGetErrorString
        function.restype = ctypes.c_char_p
        raise NvrtcError(f"{what}: {function(code).decode()} ({code})")


def compile_cubin(name: str, source: str, headers: dict[str, str], options: Sequence[str]) -> Compiled:
    """Compiles ``source`` (shown as ``name`` in messages). ``headers`` maps the names in #include lines to texts, so
    nothing is read from disk. ``options`` must hold --gpu-architecture=sm_NN. Raises NvrtcError."""
    lib = _library()
    wanted = next(o for o in options if o.startswith(_ARCHITECTURE)).removeprefix(_ARCHITECTURE)
    if why := refusal(wanted):
        raise NvrtcError(why)
    program = ctypes.c_void_p()
    texts = (ctypes.c_char_p * len(headers))(*(t.encode() for t in headers.values()))
    names = (ctypes.c_char_p * len(headers))(*(n.encode() for n in headers))
    _check(
        lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), len(headers), texts, names),
        "nvrtcCreateProgram",
    )
    try:
        flags = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        code = lib.nvrtcCompileProgram(program, len(options), flags)
        size = ctypes.c_size_t()
        _check(lib.nvrtcGetProgramLogSize(program, ctypes.byref(size)), "nvrtcGetProgramLogSize")
        log = ctypes.create_string_buffer(size.value)
        _check(lib.nvrtcGetProgramLog(program, log), "nvrtcGetProgramLog")
        text = log.value.decode(errors="replace").strip()
        if code:
            raise NvrtcError(f"{name}: does not compile\n{text}")
        _check(lib.nvrtcGetCUBINSize(program, ctypes.byref(size)), "nvrtcGetCUBINSize")
        cubin = ctypes.create_string_buffer(size.value)
        _check(lib.nvrtcGetCUBIN(program, cubin), "nvrtcGetCUBIN")
        return Compiled(cubin.raw, text)
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))
