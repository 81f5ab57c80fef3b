"""Given the same r and s, a card makes the CPU's proof, bit by bit, in every mode."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuzk_engine.curves import Curve
from cuzk_engine.devices.arena import Capacity
from cuzk_engine.devices.base import Owner
from cuzk_engine.devices.cpu import CpuDevice
from cuzk_engine.devices.cuda.device import CudaDevice
from cuzk_engine.devices.host import HostMemory
from cuzk_engine.key_tiers import KeyTiers
from cuzk_engine.keys import KeyCache
from cuzk_engine.pipeline.modes import Evaluation, PipelineSettings, Prestage, Residency
from cuzk_engine.runner import Runner
from cuzk_engine.workload.make import write_folder
from cuzk_engine.workload.profiles import make_circuit
from tests.gpu.conftest import KERNELS

GIB = 1 << 30
ME = Owner("modes", 0, 0)
ALL = [
    PipelineSettings(prestage, double_buffer, evaluate, residency, batch=batch)
    for prestage, double_buffer, evaluate, residency, batch in itertools.product(
        Prestage, (True, False), (Evaluation.HOST, Evaluation.DEVICE), (Residency.HOST, Residency.DEVICE), (0, 5000)
    )
]


def third(bound: int) -> int:
    return bound // 3


@pytest.fixture(scope="module", params=["keys in page-locked memory", "keys where they are mapped"])
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    with HostMemory(4 * GIB, device="cuda:0") as host:
        device = CudaDevice(0, KERNELS, host=host)
        tiers = KeyTiers(device, host) if "locked" in request.param else None
        runner = Runner(device, KeyCache(tiers=tiers), randomness=third)
        yield runner
        runner.release_caches()
        device.release_residents()
        assert device.memory().by_purpose == {"context": device.context_bytes}
        device.close()


@pytest.mark.parametrize("profile", ["dense:2^14", "porep:2^14"])
def test_all_modes_make_the_cpus_proof(runner: Runner, curve: Curve, tmp_path: Path, profile: str) -> None:
    write_folder(make_circuit(profile, curve), tmp_path, seed="modes")
    files = tmp_path / "circuit.zkey", tmp_path / "witness.wtns"
    cpu = Runner(CpuDevice(Capacity(4 * GIB, "test")), KeyCache(), randomness=third)
    expected = cpu.prove(*files, ME).proof
    for settings in ALL:
        outcome = runner.prove(*files, ME, settings)
        mode = outcome.mode
        assert outcome.proof == expected, mode
        done = (mode.prestage, mode.double_buffer, mode.evaluate, mode.residency)
        assert done == (settings.prestage, settings.double_buffer, settings.evaluate, settings.residency)
