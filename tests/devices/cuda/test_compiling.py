"""Many programs compiled at a time: order of progress, faults, and who does not want them any more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuzk_engine.devices.base import CancelToken
from cuzk_engine.devices.cuda import compiling
from cuzk_engine.devices.cuda.compiler import Program
from cuzk_engine.devices.cuda.compiling import compile_all, missing, progress_text
from cuzk_engine.devices.cuda.nvrtc import NvrtcError
from cuzk_engine.errors import CancelledError

PROGRAMS = [Program(f"{number}.cu") for number in range(6)]


class Compiler:
    """``build`` that waits until it is let go, and fails for the programs of ``faulty``."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.let_go.set()
        self.faulty: set[Program] = set()
        self.built: list[Program] = []

    def build(self, program: Program, architecture: str, cache: Path | None) -> tuple[bytes, str]:
        self.let_go.wait()
        self.built.append(program)
        if program in self.faulty:
            raise NvrtcError(f"{program.source}: does not compile")
        return program.source.encode(), architecture


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    made = Compiler()
    monkeypatch.setattr(compiling, "build", made.build)
    yield made
    made.let_go.set()


def test_progress_counts_up_to_all(compiler: Compiler) -> None:
    heard: list[tuple[str, int, int]] = []
    thread = threading.get_ident()

    def progress(architecture: str, done: int, total: int) -> None:
        assert threading.get_ident() == thread
        heard.append((architecture, done, total))

    results = compile_all([*PROGRAMS, *PROGRAMS], "sm_90", None, progress)
    assert results == {program: (program.source.encode(), "sm_90") for program in PROGRAMS}
    assert heard == [("sm_90", done, 6) for done in range(7)]
    assert sorted(p.source for p in compiler.built) == [p.source for p in PROGRAMS]
    assert progress_text(*heard[2]) == "compiling GPU kernels for sm_90 (2 of 6)"
    assert compile_all([], "sm_90", None) == {}


def test_a_program_that_does_not_compile(compiler: Compiler) -> None:
    compiler.faulty = {PROGRAMS[0]}
    with pytest.raises(NvrtcError, match=r"0\.cu: does not compile"):
        compile_all(PROGRAMS, "sm_90", None)


def test_who_cancels_does_not_wait_for_the_compiler(compiler: Compiler) -> None:
    compiler.let_go.clear()
    cancel = CancelToken()

    def progress(architecture: str, done: int, total: int) -> None:
        cancel.set()

    with pytest.raises(CancelledError):
        compile_all(PROGRAMS, "sm_90", None, progress, cancel.check)
    assert not compiler.built


def test_only_what_is_not_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiling, "is_cached", lambda program, architecture, cache: program in PROGRAMS[:4])
    assert missing([*PROGRAMS, *PROGRAMS], "sm_90", tmp_path) == PROGRAMS[4:]
    assert missing(PROGRAMS, "sm_90", None) == PROGRAMS
