"""The native library, once for each code path that this processor can run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from cuzk_engine.native import LIBRARY_VARIABLE, NativeLibrary, library

PATHS = ("portable", "bmi2+adx", "bmi2+adx+avx512ifma")
_SANITIZED = os.environ.get(LIBRARY_VARIABLE)  # read before cuzk_home removes it


@pytest.fixture(scope="session")
def default_native() -> NativeLibrary:
    """The library as the engine loads it."""
    with pytest.MonkeyPatch.context() as patch:
        if _SANITIZED:
            patch.setenv(LIBRARY_VARIABLE, _SANITIZED)
        return library()


@pytest.fixture(scope="session", params=PATHS)
def native(
    request: pytest.FixtureRequest, default_native: NativeLibrary, tmp_path_factory: pytest.TempPathFactory
) -> NativeLibrary:
    """A copy of the library that is held to one code path: a copy chooses anew, for good, at its first call."""
    name: str = request.param
    if name not in default_native.isa_available():
        pytest.skip(f"this processor cannot run {name}")
    copy = Path(shutil.copy(default_native.path, tmp_path_factory.mktemp("native") / f"lib{name}.so"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUZK_CPU_FEATURES", name.replace("+", ","))
        loaded = NativeLibrary(copy)
        assert loaded.isa() == name
    return loaded
