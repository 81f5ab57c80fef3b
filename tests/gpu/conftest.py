"""Tests that need an NVIDIA GPU. Without one they are skipped: `python -m pytest tests/gpu` is the whole command."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

cupy = pytest.importorskip("cupy", exc_type=ImportError)

from cuzk_engine.curves import BLS12_381, BN254, Curve  # noqa: E402
from cuzk_engine.devices.cuda.module import Kernels  # noqa: E402


def _has_gpu() -> bool:
    try:
        return int(cupy.cuda.runtime.getDeviceCount()) > 0
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not _has_gpu():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU"))


@pytest.fixture(scope="session")
def kernels() -> Kernels:
    return Kernels(Path(tempfile.gettempdir()) / "cuzk-kernels")


@pytest.fixture(params=[BN254, BLS12_381], ids=["bn254", "bls12_381"])
def curve(request: pytest.FixtureRequest) -> Curve:
    found: Curve = request.param
    return found
