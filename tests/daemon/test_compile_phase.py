"""Compiling a GPU's kernels is a phase of the job that waits for it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from cuzk_engine import proving_process
from cuzk_engine.daemon.runner_runtime import RunnerRuntime
from cuzk_engine.daemon.runtime import Order
from cuzk_engine.devices.base import CancelToken
from cuzk_engine.devices.cpu import CpuDevice
from cuzk_engine.devices.select import open_device
from tests.support.cases import case

SETTINGS = {
    "pipeline.prestage": "off",
    "pipeline.double_buffer": "true",
    "pipeline.evaluate": "auto",
    "srs.residency": "auto",
}

OPTIONS = {
    "arena": "auto",
    "threads": 1,
    "processes": 1,
    "budget": "auto",
    "margin": "0B",
    "evaluation_threads": 0,
    "min_idle": "0s",
}


def test_each_job_hears_of_its_own_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers: the device tells in the thread that launches."""
    opened: dict[str, Any] = {}

    class Device(CpuDevice):
        def launch(self, operation: Any, owner: Any, cancel: Any, after: Any = None) -> Any:
            if owner.job == "first":
                opened["compiling"]("sm_90", 7, 14)
            return super().launch(operation, owner, cancel, after)

    def opening(name: str, sink: Any, arena: str, threads: int, host: Any, compiling: Any) -> CpuDevice:
        opened["compiling"] = compiling
        device = open_device("cpu", sink, arena, threads, host)
        device.__class__ = Device
        assert isinstance(device, CpuDevice)
        return device

    monkeypatch.setattr(proving_process, "open_device", opening)
    runtime = RunnerRuntime.open("cuda:0", OPTIONS, lambda event: None)
    files = case("bn128", "mul_out")
    heard: dict[str, list[tuple[str, float]]] = {"first": [], "second": []}

    def prove(job: str) -> None:
        order = Order(job, 0, str(files.path("circuit.zkey")), (), str(files.path("witness.wtns")), SETTINGS)
        runtime.prove(order, lambda phase, share: heard[job].append((phase, share)), CancelToken())

    threads = [threading.Thread(target=prove, args=(job,)) for job in heard]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runtime.close()
    words = "compiling GPU kernels for sm_90 (7 of 14)"
    assert words in [phase for phase, _ in heard["first"]]
    assert words not in [phase for phase, _ in heard["second"]]
    shares = [share for _, share in heard["first"]]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_what_is_compiled_before_there_is_a_job_is_a_step_of_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    def opening(name: str, sink: Any, arena: str, threads: int, host: Any, compiling: Any) -> CpuDevice:
        compiling("sm_90", 3, 14)
        device = open_device("cpu", sink, arena, threads, host)
        assert isinstance(device, CpuDevice)
        return device

    monkeypatch.setattr(proving_process, "open_device", opening)
    steps: list[str] = []
    RunnerRuntime.open("cuda:0", OPTIONS, lambda event: None, steps.append).close()
    assert steps == ["waiting for the driver", "compiling GPU kernels for sm_90 (3 of 14)"]
