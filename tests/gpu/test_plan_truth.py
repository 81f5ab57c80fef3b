"""What a card's ledger measures against the plan, in every mode, the first time and when everything is there."""

import itertools

import pytest

from cuzk_engine.cli.main import main
from cuzk_engine.devices.base import Owner
from cuzk_engine.devices.cuda.device import CudaDevice
from cuzk_engine.keys import KeyCache
from cuzk_engine.pipeline.modes import Evaluation, PipelineSettings, Prestage, Residency
from cuzk_engine.runner import Runner
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
def device():
    device = CudaDevice(0, KERNELS)
    yield device
    device.close()


@pytest.fixture(scope="module", params=[("dense:2^17", DENSE), ("porep:2^17", OTHERWISE)], ids=lambda p: p[0])
def circuit(request, tmp_path_factory):
    """(folder, how far the plan may be above the peak) of a circuit that is large beside what is rounded."""
    profile, slack = request.param
    folder = tmp_path_factory.mktemp("circuit")
    assert main(["workload", profile, str(folder)]) == 0
    return folder, slack


@pytest.mark.parametrize("settings", MODES, ids=lambda s: f"{s.prestage}-{s.evaluate}-{s.residency}-{s.batch}")
def test_plan_is_true(device, circuit, settings):
    folder, slack = circuit
    runner = Runner(device, KeyCache())
    files = folder / "circuit.zkey", folder / "witness.wtns"
    try:
        for _ in range(2):
            assert_plan_is_true(device, lambda: runner.prove(*files, Owner("plan", 0, 0), settings), slack)
    finally:
        runner.release_caches()
        device.release_residents()
