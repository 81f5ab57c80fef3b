"""The plan of a partition on the CUDA device against what its ledger measures, without kernels: two MSMs under way,
points that stay and points that are sent ahead."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from cuzk_engine.devices.base import Owner
from cuzk_engine.keys import KeyCache
from cuzk_engine.pipeline.modes import Evaluation, PipelineSettings, Prestage, Residency
from cuzk_engine.runner import Runner
from tests.devices.cuda.conftest import Bench
from tests.support.cases import case
from tests.support.plan_truth import DENSE, OTHERWISE, assert_plan_is_true

MODES = [
    PipelineSettings(prestage, double_buffer, evaluate, residency, batch=batch)
    for (prestage, double_buffer), evaluate, residency, batch in itertools.product(
        ((Prestage.OFF, False), (Prestage.LOCKED, True), (Prestage.AHEAD, True)),
        (Evaluation.HOST, Evaluation.DEVICE),
        (Residency.HOST, Residency.DEVICE),
        (0, 104),
    )
]
CIRCUITS = [("bn128", "chain_252", DENSE), ("bls12381", "chain_252", DENSE), ("bn128", "merkle10", OTHERWISE)]


def shown(settings: PipelineSettings) -> str:
    double = "double" if settings.double_buffer else "single"
    return f"{settings.prestage}-{double}-{settings.evaluate}-{settings.residency}-{settings.batch}"


@pytest.mark.parametrize("settings", MODES, ids=shown)
def test_plan_is_true(bench: Bench, settings: PipelineSettings) -> None:
    device, keys = bench.open(), KeyCache()
    runner = Runner(device, keys)
    for curve, name, slack in CIRCUITS:
        item = case(curve, name)
        files = item.path("circuit.zkey"), item.path("witness.wtns")
        for _ in range(2):

            def prove(files: Any = files) -> Any:
                return runner.prove(*files, Owner("plan", 0, 0), settings)

            assert_plan_is_true(device, prove, slack)
        runner.release_caches()
        device.release_residents()
        assert device.ledger.committed == device.context_bytes
    device.close()
