"""Kernels of a device: what is compiled before it is needed, who hears of it, and what it leaves in telemetry."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cuzk_engine.devices.base import CancelToken, Owner
from cuzk_engine.devices.cuda import compiling
from cuzk_engine.devices.cuda.compiler import Program
from cuzk_engine.devices.cuda.nvrtc import NvrtcError
from cuzk_engine.errors import CancelledError
from cuzk_engine.events import Event, Kind, Span
from tests.devices.cuda import fake_cupy

NAME = "cuzk_engine.devices.cuda.module"
PROGRAMS = [Program(f"{number}.cu") for number in range(3)]
ME = Owner("job", 2, 1)


class Module:
    loaded: list[bytes]

    def load(self, cubin: bytes) -> None:
        self.loaded.append(cubin)

    def get_function(self, name: str) -> Any:
        return SimpleNamespace(name=name, ptr=len(name))


class Bench:
    def __init__(self, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.module = module
        self.events: list[Event] = []
        self.heard: list[tuple[str, int, int]] = []
        self.built: list[Program] = []
        self.cached: set[Program] = set()
        self.fault: Exception | None = None
        monkeypatch.setattr(compiling, "build", self.build)
        monkeypatch.setattr(module, "build", self.build)
        monkeypatch.setattr(compiling, "is_cached", lambda program, architecture, cache: program in self.cached)

    def build(self, program: Program, architecture: str, cache: Path | None) -> tuple[bytes, str]:
        if self.fault:
            raise self.fault
        self.built.append(program)
        if cache is not None:
            self.cached.add(program)
        return program.source.encode(), ""

    def open(self, cache: Path | None = Path("/nonexistent")) -> Any:
        return self.module.Kernels(cache, "cuda:0", self.events.append, lambda *words: self.heard.append(words))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    _, modules = fake_cupy.make()
    Module.loaded = []
    cuda: Any = modules["cupy.cuda"]
    cuda.function = SimpleNamespace(Module=Module)
    before = sys.modules.pop(NAME, None)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    yield Bench(importlib.import_module(NAME), monkeypatch)
    sys.modules.pop(NAME, None)
    if before is not None:
        sys.modules[NAME] = before


def test_what_is_missing_is_compiled_once_and_told(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    kernels = bench.open()
    bench.cached = {PROGRAMS[0]}
    assert kernels.prepare([*PROGRAMS, *PROGRAMS], ME) == 2
    assert bench.heard == [("sm_90", 0, 2), ("sm_90", 1, 2), ("sm_90", 2, 2)]
    (span,) = bench.events
    assert isinstance(span, Span)
    assert caplog.messages == ["cuda:0: compiling 2 GPU kernels for sm_90; this happens once"]
    assert (span.device, span.lane, span.kind) == ("cuda:0", "host:1", Kind.COMPILE)
    assert (span.job, span.partition, span.worker) == ("job", 2, 1)
    assert span.start_ns <= span.end_ns
    assert kernels.prepare(PROGRAMS, ME) == 0
    assert len(bench.events) == 1
    for program in PROGRAMS:
        kernels.function(program, "kernel")
    assert sorted(bench.built, key=lambda p: p.source) == PROGRAMS  # the first one from the cache


def test_without_a_cache_nothing_is_compiled_twice(bench: Bench) -> None:
    kernels = bench.open(cache=None)
    assert kernels.prepare(PROGRAMS, ME) == 3
    assert kernels.prepare(PROGRAMS, ME) == 0
    for program in PROGRAMS:
        kernels.function(program, "kernel")
        kernels.function(program, "kernel")
        kernels.function(program, "other")
    assert kernels.prepare(PROGRAMS, ME) == 0
    assert len(bench.built) == 3
    assert sorted(Module.loaded) == [b"0.cu", b"1.cu", b"2.cu"]


def test_a_fault_and_a_cancellation_leave_a_span(bench: Bench) -> None:
    bench.fault = NvrtcError("0.cu: does not compile")
    with pytest.raises(NvrtcError):
        bench.open().prepare(PROGRAMS, ME)
    cancel = CancelToken()
    cancel.set()
    with pytest.raises(CancelledError):
        bench.open().prepare(PROGRAMS, ME, cancel.check)
    assert [event.kind for event in bench.events if isinstance(event, Span)] == [Kind.COMPILE] * 2
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("compiler") and not thread.daemon]
