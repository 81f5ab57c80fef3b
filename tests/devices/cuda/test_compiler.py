"""Compiling kernels: what the cache's key covers, and that programs compile where NVRTC is installed. Needs no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuzk_engine.devices.cuda import compiler, nvrtc
from cuzk_engine.devices.cuda.compiler import Program

_SOURCE = '#include "sub/value.hpp"\nextern "C" __global__ void kernel(int *out) { *out = VALUE; }\n'


def _has_nvrtc() -> bool:
    try:
        nvrtc.version()
    except nvrtc.NvrtcError:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(not _has_nvrtc(), reason="NVRTC is not installed")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "kernels"
    (folder / "sub").mkdir(parents=True)
    (folder / "main.cu").write_text(_SOURCE)
    (folder / "sub" / "value.hpp").write_text('#pragma once\n#include "../deep.hpp"\n')
    (folder / "deep.hpp").write_text("#define VALUE 1\n")
    return folder


def _key(root: Path, *options: str) -> str:
    return compiler.key_of(*compiler.read_sources(root, "main.cu"), options, (13, 0))


def test_reaches_every_header_by_its_path(root: Path) -> None:
    main, headers = compiler.read_sources(root, "main.cu")
    assert set(headers) == {"sub/value.hpp", "deep.hpp"}
    assert '#include "deep.hpp"' in headers["sub/value.hpp"]
    assert '#include "sub/value.hpp"' in main


def test_key_covers_headers_options_and_version(root: Path) -> None:
    before = _key(root, "-DA")
    assert _key(root, "-DA") == before
    assert _key(root, "-DB") != before
    assert compiler.key_of(*compiler.read_sources(root, "main.cu"), ("-DA",), (13, 1)) != before
    (root / "deep.hpp").write_text("#define VALUE 2\n")
    assert _key(root, "-DA") != before


@needs_nvrtc
def test_an_edited_header_is_compiled_anew(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first, report = compiler.build(Program("main.cu"), "sm_90", cache, root)
    assert compiler.usage(report)["kernel"].spill_loads == 0
    assert compiler.build(Program("main.cu"), "sm_90", cache, root) == (first, report)
    assert len(list(cache.glob("*.cubin"))) == 1
    (root / "deep.hpp").write_text("#define VALUE 2\n")
    assert compiler.build(Program("main.cu"), "sm_90", cache, root)[0] != first
    assert len(list(cache.iterdir())) == 4


@needs_nvrtc
def test_an_error_names_the_source(root: Path) -> None:
    (root / "deep.hpp").write_text("")
    with pytest.raises(nvrtc.NvrtcError, match=r"main\.cu: does not compile\n[^$]*VALUE"):
        compiler.build(Program("main.cu"), "sm_90", None, root)


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize(
    "program",
    [
        Program("ff/field.cu", ("-DCUZK_FIELD=Bls12_381Fq",)),
        Program(
            "ntt/ntt.cu",
            ("-DCUZK_FIELD=Bls12_381Fr", "-DCUZK_NTT_THREADS=512", "-DCUZK_NTT_BLOCKS=2", "-DCUZK_NTT_EACH=2"),
        ),
        Program("msm/digits.cu", ("-DCUZK_FIELD=Bls12_381Fr",)),
        Program("msm/images.cu", ("-DCUZK_CURVE=Bn254", "-DCUZK_GROUP=2")),
        Program("msm/bits.cu", ("-DCUZK_CURVE=Bn254", "-DCUZK_GROUP=1", "-DCUZK_SHORT_LATENCY=1")),
        Program("msm/sort.cu"),
        Program("msm/tasks.cu"),
        Program("msm/accumulate.cu", ("-DCUZK_CURVE=Bls12_381", "-DCUZK_GROUP=1", "-DCUZK_BLOCKS=3")),
        Program("groth16/vectors.cu", ("-DCUZK_FIELD=Bn254Fr",)),
    ],
    ids=lambda p: p.source,
)
def test_programs_compile(program: Program, architecture: str) -> None:
    _, report = compiler.build(program, architecture, None)
    found = compiler.usage(report)
    assert found
    assert "msm_accumulate" not in found or found["msm_accumulate"].spill_loads == 0, found
