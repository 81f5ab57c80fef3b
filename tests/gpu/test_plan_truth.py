"""What a card's ledger measures against the plan, in every mode, the first time and when everything is there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuzk_engine.curves import Curve
from cuzk_engine.devices.base import Owner
from cuzk_engine.devices.cuda.device import CudaDevice
from cuzk_engine.keys import KeyCache
from cuzk_engine.pipeline.modes import Evaluation, PipelineSettings, Prestage, Residency
from cuzk_engine.runner import ProofOutcome, Runner
from cuzk_engine.workload.make import write_folder
from cuzk_engine.workload.profiles import make_circuit
from tests.gpu.conftest import KERNELS
from tests.support.plan_truth import DENSE, OTHERWISE, assert_plan_is_true

MODES = [
    PipelineSettings(prestage, double_buffer, evaluate, residency, batch=batch)
    for (prestage, double_buffer), evaluate, residency, batch in itertools.product(
        ((Prestage.OFF, False), (Prestage.AHEAD, True)),
        (Evaluation.HOST, Evaluation.DEVICE),
        (Residency.HOST, Residency.DEVICE),
        (0, 1 << 15),
    )
]


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    device = CudaDevice(0, KERNELS)
    yield Runner(device, KeyCache())
    device.close()


@pytest.mark.parametrize(("profile", "slack"), [("dense:2^17", DENSE), ("porep:2^17", OTHERWISE)])
def test_plan_is_true(runner: Runner, curve: Curve, tmp_path: Path, profile: str, slack: float) -> None:
    write_folder(make_circuit(profile, curve), tmp_path, seed="plan")
    files = tmp_path / "circuit.zkey", tmp_path / "witness.wtns"
    device = runner.device
    assert isinstance(device, CudaDevice)
    try:
        for settings in MODES:

            def prove(settings: PipelineSettings = settings) -> ProofOutcome:
                return runner.prove(*files, Owner("plan", 0, 0), settings)

            for _ in range(2):
                assert_plan_is_true(device, prove, slack)
            device.release_residents()
            runner._tables.clear()
    finally:
        runner.release_caches()
        device.release_residents()
