"""Tests that need an NVIDIA GPU and CuPy: `python -m pytest tests/gpu -m gpu`. They are skipped without
a GPU, and not collected without CuPy."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuzk_engine.curves import BLS12_381, BN254, Curve

if TYPE_CHECKING:
    from cuzk_engine.devices.cuda.module import Kernels

KERNELS = Path(tempfile.gettempdir()) / "cuzk-kernels"
"""Compiled kernels, kept between tests and runs."""

_HAS_CUPY = importlib.util.find_spec("cupy") is not None
collect_ignore_glob = [] if _HAS_CUPY else ["test_*.py"]


def _has_gpu() -> bool:
    if not _HAS_CUPY:
        return False
    import cupy

    try:
        return int(cupy.cuda.runtime.getDeviceCount()) > 0
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    mine = [item for item in items if item.path.is_relative_to(here)]
    for item in mine:
        item.add_marker(pytest.mark.gpu)
    if mine and not _has_gpu():
        for item in mine:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU"))


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    """Compiles what the cache lacks, on all cores: a test alone would do it one kernel after another."""
    from cuzk_engine.devices.cuda import programs
    from cuzk_engine.devices.cuda.module import Kernels

    if _has_gpu():
        Kernels(KERNELS).prepare([program for curve in (BN254, BLS12_381) for program in programs.every(curve)])


@pytest.fixture(scope="session")
def kernels() -> Kernels:
    from cuzk_engine.devices.cuda.module import Kernels

    return Kernels(KERNELS)


@pytest.fixture(params=[BN254, BLS12_381], ids=["bn254", "bls12_381"])
def curve(request: pytest.FixtureRequest) -> Curve:
    found: Curve = request.param
    return found
