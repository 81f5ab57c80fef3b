"""Whole proofs on the GPU: every case, every mode, several workers, too little memory. Every proof is verified by the
runner, and again here against the key that snarkjs wrote."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuzk_engine.cli import main as command_line
from cuzk_engine.curves import BLS12_381, Curve
from cuzk_engine.devices.base import Owner
from cuzk_engine.devices.cuda.device import CudaDevice
from cuzk_engine.errors import MemoryPlanError, ProofInvalidError
from cuzk_engine.events import Event, Incident, Lane, Span
from cuzk_engine.formats.proof import PublicSignals, VerificationKey
from cuzk_engine.groth16.verify import verify
from cuzk_engine.keys import KeyCache
from cuzk_engine.paths import cache_dir
from cuzk_engine.runner import PipelineSettings, ProofOutcome, Runner
from cuzk_engine.workload.make import write_folder
from cuzk_engine.workload.profiles import make_circuit
from tests.gpu.conftest import KERNELS
from tests.support.cases import CASES, Case, case

MIB = 1 << 20
PURPOSES = {"context", "ntt", "srs", "matrices"}


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return []


@pytest.fixture(scope="module")
def device(events: list[Event]) -> Iterator[CudaDevice]:
    device = CudaDevice(0, KERNELS, events.append)
    yield device
    device.close()
    assert device.memory().used == 0


@pytest.fixture
def runner(device: CudaDevice, events: list[Event]) -> Iterator[Runner]:
    del events[:]
    runner = Runner(device, KeyCache(), events.append)
    yield runner
    assert set(device.memory().by_purpose) <= PURPOSES
    runner.release_caches()
    device.release_residents()
    assert device.memory().by_purpose == {"context": device.context_bytes}
    assert device.ledger.committed == device.context_bytes


def prove(
    runner: Runner, item: Case, settings: PipelineSettings | None = None, owner: Owner | None = None
) -> ProofOutcome:
    outcome = runner.prove(
        item.path("circuit.zkey"),
        item.path("witness.wtns"),
        owner or Owner("job", 0, 0),
        settings or PipelineSettings(),
    )
    assert outcome.public == PublicSignals.read(item.path("public.json"))
    verify(VerificationKey.read(item.path("verification_key.json")), outcome.public.values, outcome.proof)
    return outcome


@pytest.mark.parametrize("item", CASES, ids=str)
def test_every_case_proves(runner: Runner, item: Case) -> None:
    before = runner.device.memory().used
    outcome = prove(runner, item)
    assert outcome.device == "cuda:0"
    resident = sum(runner.device.memory().by_purpose.get(name, 0) for name in ("srs", "matrices"))
    assert runner.device.memory().used >= before + resident
    prove(runner, item)


def test_spans_and_residency(runner: Runner, events: list[Event]) -> None:
    item = case("bls12381", "merkle10")
    for first in (True, False):
        del events[:]
        prove(runner, item)
        spans = [event for event in events if isinstance(event, Span)]
        kinds = {span.kind for span in spans if span.lane == Lane.COMPUTE}
        assert {"spmv", "ntt.coset", "pointwise", "msm.digits", "msm.accumulate", "msm.reduce"} <= kinds
        assert ("upload.srs" in {span.kind for span in spans}) is first
        (held,) = [span for span in spans if span.kind == "lock.held"]
        slack = 1_000_000
        for span in spans:
            if span.lane == Lane.COMPUTE:  # the last sums may run on when the next worker has the lock
                assert held.start_ns - slack <= span.start_ns
    assert not [event for event in events if isinstance(event, Incident)]


@pytest.mark.parametrize("workers", [2, 3])
def test_several_workers(runner: Runner, workers: int) -> None:
    items = [case("bn128", "merkle10"), case("bls12381", "merkle10")]
    faults: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            for k in range(4):
                prove(runner, items[(k + worker) % 2], owner=Owner(f"job {worker} {k}", 0, worker))
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_too_little_memory() -> None:
    device = CudaDevice(0, KERNELS, limit=2 * MIB)
    try:
        runner = Runner(device, KeyCache())
        with pytest.raises(MemoryPlanError) as refusal:
            prove(runner, case("bn128", "merkle10"))
        assert refusal.value.requested > 2 * MIB
        assert refusal.value.capacity == device.info.capacity
        assert device.memory().by_purpose == {"context": device.context_bytes}
    finally:
        device.close()


def test_a_witness_that_does_not_satisfy(runner: Runner, tmp_path: Path) -> None:
    item = case("bn128", "merkle10")
    data = bytearray(item.path("witness.wtns").read_bytes())
    data[-32] ^= 1
    (tmp_path / "bad.wtns").write_bytes(data)
    with pytest.raises(ProofInvalidError):
        runner.prove(item.path("circuit.zkey"), tmp_path / "bad.wtns", Owner())


@pytest.mark.parametrize("profile", ["dense:2^12", "porep:2^12"])
def test_workloads(runner: Runner, curve: Curve, tmp_path: Path, profile: str) -> None:
    write_folder(make_circuit(profile, curve), tmp_path, seed="test")
    outcome = runner.prove(tmp_path / "circuit.zkey", tmp_path / "witness.wtns", Owner())
    verify(VerificationKey.read(tmp_path / "verification_key.json"), outcome.public.values, outcome.proof)


def test_a_key_of_bellperson(runner: Runner, tmp_path: Path) -> None:
    write_folder(make_circuit("chain:2^8", BLS12_381), tmp_path, seed="test")
    circuit, key = tmp_path / "circuit.r1cs", tmp_path / "key.params"
    assert command_line.main(["setup", str(circuit), str(key), "--format", "params", "--seed", "test"]) == 0
    outcome = runner.prove(key, tmp_path / "witness.wtns", Owner(), circuit=circuit)
    assert outcome.device == "cuda:0"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUZK_HOME", str(tmp_path / "home"))
    cache_dir().mkdir(parents=True, exist_ok=True)
    (cache_dir() / "kernels").symlink_to(KERNELS)
    for item in (case("bn128", "merkle10"), case("bls12381", "mul_out")):
        files = [str(item.path("circuit.zkey")), str(item.path("witness.wtns"))]
        out = [str(tmp_path / "proof.json"), str(tmp_path / "public.json")]
        assert command_line.main(["prove", *files, *out, "--device", "cuda:0"]) == 0
        key = str(item.path("verification_key.json"))
        assert command_line.main(["verify", key, out[1], out[0]]) == 0
    assert "on cuda:0" in capsys.readouterr().out
    (cache_dir() / "kernels").unlink()
