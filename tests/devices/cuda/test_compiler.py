"""Compiling kernels: what the cache's key covers, and what a compiler's report says. Needs no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuzk_engine.devices.cuda import compiler, nvrtc
from cuzk_engine.devices.cuda.compiler import Program, Usage
from cuzk_engine.devices.cuda.kernel_cache import KernelCache
from tests.support.nvrtc import needs_nvrtc

_SOURCE = '#include "sub/value.hpp"\nextern "C" __global__ void kernel(int *out) { *out = VALUE; }\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "kernels"
    (folder / "sub").mkdir(parents=True)
    (folder / "main.cu").write_text(_SOURCE)
    (folder / "sub" / "value.hpp").write_text('#pragma once\n#include "../deep.hpp"\n')
    (folder / "deep.hpp").write_text("#define VALUE 1\n")
    return folder


def _key(root: Path, *options: str) -> str:
    return compiler.key_of(*compiler.read_sources(root, "main.cu"), options, "NVRTC 13.0 1000")


def test_reaches_every_header_by_its_path(root: Path) -> None:
    main, headers = compiler.read_sources(root, "main.cu")
    assert set(headers) == {"sub/value.hpp", "deep.hpp"}
    assert '#include "deep.hpp"' in headers["sub/value.hpp"]
    assert '#include "sub/value.hpp"' in main


def test_key_covers_headers_options_and_version(root: Path) -> None:
    before = _key(root, "-DA")
    assert _key(root, "-DA") == before
    assert _key(root, "-DB") != before
    assert compiler.key_of(*compiler.read_sources(root, "main.cu"), ("-DA",), "NVRTC 13.0 1001") != before
    (root / "deep.hpp").write_text("#define VALUE 2\n")
    assert _key(root, "-DA") != before


@needs_nvrtc
def test_an_edited_header_is_compiled_anew(root: Path, tmp_path: Path) -> None:
    cache, program = tmp_path / "cache", Program("main.cu")
    assert not compiler.is_cached(program, "sm_90", cache, root)
    first, report = compiler.build(program, "sm_90", cache, root)
    assert compiler.is_cached(program, "sm_90", cache, root)
    assert not compiler.is_cached(program, "sm_80", cache, root)
    assert compiler.usage(report)["kernel"].spill_loads == 0
    assert compiler.build(program, "sm_90", cache, root) == (first, report)
    assert len(list(cache.iterdir())) == 1
    (root / "deep.hpp").write_text("#define VALUE 2\n")
    assert not compiler.is_cached(program, "sm_90", cache, root)
    assert compiler.build(program, "sm_90", cache, root)[0] != first
    assert len(list(cache.iterdir())) == 2


@needs_nvrtc
def test_a_spoiled_entry_is_compiled_anew(root: Path, tmp_path: Path) -> None:
    cache, program = tmp_path / "cache", Program("main.cu")
    first = compiler.build(program, "sm_90", cache, root)
    (entry,) = cache.iterdir()
    entry.write_bytes(entry.read_bytes()[:-10])
    cubin, _ = compiler.build(program, "sm_90", cache, root)
    assert cubin == first[0]
    assert KernelCache(cache).get(entry.stem) is not None


@needs_nvrtc
def test_an_error_names_the_source(root: Path) -> None:
    (root / "deep.hpp").write_text("")
    with pytest.raises(nvrtc.NvrtcError, match=r"main\.cu: does not compile\n[^$]*VALUE"):
        compiler.build(Program("main.cu"), "sm_90", None, root)


@needs_nvrtc
@pytest.mark.parametrize(
    ("architecture", "words"),
    [("sm_999", "install a newer nvidia-cuda-nvrtc"), ("sm_30", "the card is too old for it")],
)
def test_a_card_that_the_compiler_does_not_know(root: Path, architecture: str, words: str) -> None:
    with pytest.raises(nvrtc.NvrtcError) as refusal:
        compiler.build(Program("main.cu"), architecture, None, root)
    assert f"not for {architecture}: {words}" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@needs_nvrtc
def test_the_compilers_identity_holds_version_and_build() -> None:
    name, release, size = nvrtc.identity().split()
    assert (name, release) == ("NVRTC", ".".join(map(str, nvrtc.version())))
    assert int(size) > 1_000_000
    assert 90 in nvrtc.architectures()


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_candidates", lambda: ["/nonexistent/libnvrtc.so.13"])
    nvrtc._library.cache_clear()
    nvrtc.architectures.cache_clear()
    try:
        assert nvrtc.refusal("sm_90") == (
            "NVRTC (libnvrtc.so.13) not found: install nvidia-cuda-nvrtc or the CUDA toolkit"
        )
    finally:
        nvrtc._library.cache_clear()
        nvrtc.architectures.cache_clear()


REPORT = """
ptxas info    : 576 bytes gmem
ptxas info    : Compiling entry function 'merge' for 'sm_90'
ptxas info    : Function properties for merge
ptxas         .     352 bytes stack frame, 80 bytes spill stores, 148 bytes spill loads
ptxas info    : Used 168 registers, used 0 barriers, 360 bytes cumulative stack size
ptxas info    : Compile time = 5386.048 ms
ptxas info    : Function properties for _ZN4cuzk3add
ptxas         .     0 bytes stack frame, 112 bytes spill stores, 124 bytes spill loads
ptxas info    : Compiling entry function 'count' for 'sm_90'
ptxas info    : Function properties for count
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 4100 bytes smem, 356 bytes cmem[0]
"""


def test_spills_of_what_a_kernel_calls_are_its_own() -> None:
    assert compiler.usage(REPORT) == {"merge": Usage(168, 360, 192, 272, 0), "count": Usage(32, 0, 0, 0, 4100)}
    assert compiler.usage("") == {}
