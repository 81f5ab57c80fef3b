"""The kernel cache on a card: a changed header never runs stale code."""

from __future__ import annotations

from pathlib import Path

import cupy
import numpy as np

from cuzk_engine.devices.cuda import compiler
from cuzk_engine.devices.cuda.compiler import Program
from cuzk_engine.devices.cuda.module import architecture

SOURCE = '#include "value.hpp"\nextern "C" __global__ void kernel(int *out) { *out = VALUE; }\n'


def test_an_edited_header_runs_as_it_is_now(tmp_path: Path) -> None:
    root, cache = tmp_path / "kernels", tmp_path / "cache"
    root.mkdir()
    (root / "main.cu").write_text(SOURCE)
    for value in (1, 2, 1):
        (root / "value.hpp").write_text(f"#pragma once\n#define VALUE {value}\n")
        cubin, _ = compiler.build(Program("main.cu"), architecture(), cache, root)
        module = cupy.cuda.function.Module()
        module.load(cubin)
        out = cupy.zeros(1, dtype=np.int32)
        module.get_function("kernel")((1,), (1,), (out,))
        assert int(out[0]) == value
    assert len(list(cache.iterdir())) == 2
