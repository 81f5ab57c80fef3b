"""The CUDA device's ledger against the plan, in every mode, the first time and when everything is there."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from cuzk_engine.curves import BLS12_381, BN254, Curve
from cuzk_engine.devices.base import Owner
from cuzk_engine.events import Purpose
from cuzk_engine.keys import KeyCache
from cuzk_engine.pipeline.modes import Evaluation, PipelineSettings, Prestage, Residency
from cuzk_engine.runner import Runner
from cuzk_engine.workload.make import write_folder
from cuzk_engine.workload.profiles import make_circuit

MODES = [
    PipelineSettings(prestage, double_buffer, evaluate, residency, batch=batch)
    for (prestage, double_buffer), evaluate, residency, batch in itertools.product(
        ((Prestage.OFF, False), (Prestage.AHEAD, True)),
        (Evaluation.HOST, Evaluation.DEVICE),
        (Residency.HOST, Residency.DEVICE),
        (0, 256),
    )
]


@pytest.mark.parametrize("profile", ["dense:2^10", "porep:2^10"])
@pytest.mark.parametrize("curve", [BLS12_381, BN254], ids=lambda curve: curve.name)
def test_no_mode_takes_more_than_its_plan(bench: Any, tmp_path: Path, curve: Curve, profile: str) -> None:
    write_folder(make_circuit(profile, curve), tmp_path, seed="plan")
    device = bench.open()
    runner = Runner(device, KeyCache())
    for settings in MODES:
        for turn in range(2):
            device.ledger.reset_peak()
            outcome = runner.prove(tmp_path / "circuit.zkey", tmp_path / "witness.wtns", Owner("plan", 0, 0), settings)
            memory = device.memory()
            used = memory.peak - memory.by_purpose[Purpose.CONTEXT]
            print(turn, settings, used, outcome.peak_bytes, outcome.peak_bytes / used)
            assert used <= outcome.peak_bytes, (turn, settings)
        device.release_residents()
        runner._tables.clear()
    runner.release_caches()
