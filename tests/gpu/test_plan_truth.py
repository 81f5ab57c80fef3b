"""What a card's ledger measures against the plan, in every mode, the first time and when everything is there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from cuzk_engine.curves import BLS12_381, Curve
from cuzk_engine.devices.arena import host_budget
from cuzk_engine.devices.base import Owner
from cuzk_engine.devices.cuda.device import CudaDevice
from cuzk_engine.devices.host import HostMemory
from cuzk_engine.key_tiers import KeyTiers
from cuzk_engine.keys import KeyCache
from cuzk_engine.pipeline.modes import Evaluation, PipelineSettings, Prestage, Residency
from cuzk_engine.runner import ProofOutcome, Runner
from cuzk_engine.workload.make import write_folder
from cuzk_engine.workload.profiles import make_circuit
from tests.gpu.conftest import KERNELS
from tests.support.plan_truth import DENSE, OTHERWISE, assert_plan_is_true

MODES = [
    (PipelineSettings(prestage, double_buffer, evaluate, residency), launches)
    for (prestage, double_buffer), evaluate, residency, launches in itertools.product(
        ((Prestage.OFF, False), (Prestage.AHEAD, True)),
        (Evaluation.HOST, Evaluation.DEVICE),
        (Residency.HOST, Residency.DEVICE),
        (0, 4),
    )
]
"""The last of the values: launches that a query is cut into."""
LOG_DOMAIN = {"bls12_381": 17, "bn254": 19}
"""Large enough that an MSM still runs when the next one is launched: else there are never two, as the plan has it."""


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    """With hot copies of keys, as the engine has: what travels travels at the full rate."""
    with HostMemory(host_budget().nbytes, device="cuda:0") as host:
        device = CudaDevice(0, KERNELS, host=host)
        runner = Runner(device, KeyCache(tiers=KeyTiers(device, host)))
        yield runner
        runner.release_caches()
        device.close()


@pytest.mark.parametrize(("profile", "slack"), [("dense", DENSE), ("porep", OTHERWISE)])
def test_plan_is_true(runner: Runner, curve: Curve, tmp_path: Path, profile: str, slack: float) -> None:
    log_domain = LOG_DOMAIN[curve.name]
    write_folder(make_circuit(f"{profile}:2^{log_domain}", curve), tmp_path, seed="plan")
    files = tmp_path / "circuit.zkey", tmp_path / "witness.wtns"
    device = runner.device
    assert isinstance(device, CudaDevice)
    try:
        for mode, launches in MODES:
            settings = replace(mode, batch=(1 << log_domain) // launches if launches else 0)

            def prove(settings: PipelineSettings = settings) -> ProofOutcome:
                return runner.prove(*files, Owner("plan", 0, 0), settings)

            for _ in range(2):
                assert_plan_is_true(device, prove, slack, str(settings))
            device.release_residents()
            runner._tables.clear()
    finally:
        runner.release_caches()
        device.release_residents()


@pytest.mark.parametrize("profile", ["dense:2^17", "porep:2^17"])
def test_plan_of_two_workers_is_never_below_the_peak(runner: Runner, tmp_path: Path, profile: str) -> None:
    write_folder(make_circuit(profile, BLS12_381), tmp_path, seed="plan")
    files = tmp_path / "circuit.zkey", tmp_path / "witness.wtns"
    device = runner.device
    assert isinstance(device, CudaDevice)

    def prove(worker: int, settings: PipelineSettings) -> None:
        for number in range(4):
            runner.prove(*files, Owner(f"plan {worker} {number}", 0, worker), settings)

    try:
        for prestage, double_buffer, residency in itertools.product(Prestage, (False, True), Residency):
            settings = PipelineSettings(prestage, double_buffer, residency=residency)
            planned = runner.report(files[0], settings, workers=2).total
            device.ledger.reset_peak()
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(prove, range(2), [settings] * 2))
            assert device.memory().peak <= planned
            device.release_residents()
    finally:
        runner.release_caches()
        device.release_residents()
