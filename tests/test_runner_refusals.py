"""What the pipeline refuses: in one line that says what is wrong, with all memory given back."""

import threading

import pytest

from cuzk_engine.curves import BN254
from cuzk_engine.errors import CuzkError, FormatError, ProofInvalidError
from cuzk_engine.events import Incident
from cuzk_engine.formats.proof import VerificationKey
from cuzk_engine.formats.wtns import Witness
from cuzk_engine.groth16.verify import verify
from tests.formats.builders import Parts, put, wtns
from tests.support.bench import ME, Bench
from tests.support.cases import BROKEN, case


def witness_file(folder, change):
    """The good witness of mul_pub with a changed list of values."""
    good = Witness.open(BROKEN / "good.wtns")
    values = [int.from_bytes(row.tobytes(), "little") for row in good.raw]
    path = folder / "witness.wtns"
    path.write_bytes(wtns(BN254.r, change(values)))
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v[:-1], "witness has 7 values, the circuit of .* has 8 signals"),
        (lambda v: [*v, 5], "witness has 9 values, the circuit of .* has 8 signals"),
        (lambda v: v[:1], "witness has 1 value, the circuit of .* has 8 signals"),
        (lambda v: [], "has no values"),
        (lambda v: [2, *v[1:]], "first value is not 1"),
        (lambda v: [0] * len(v), "first value is not 1"),
        (lambda v: [*v[:-1], BN254.r], "value 7 is not below the prime"),
    ],
)
def test_wrong_witnesses_are_refused_before_the_proof(tmp_path, change, message):
    bench = Bench()
    with pytest.raises(FormatError, match=message):
        bench.runner.prove(BROKEN / "good.zkey", witness_file(tmp_path, change), ME)
    assert bench.device.memory().peak == 0
    bench.assert_nothing_is_held()


@pytest.mark.parametrize("index", range(1, 8))
def test_a_witness_that_does_not_satisfy_the_circuit(tmp_path, index):
    bench = Bench()

    def change(values):
        return [*values[:index], (values[index] + 1) % BN254.r, *values[index + 1 :]]

    with pytest.raises(ProofInvalidError) as refusal:
        bench.runner.prove(BROKEN / "good.zkey", witness_file(tmp_path, change), ME)
    assert str(refusal.value) == (
        "proof did not verify: the witness does not satisfy the circuit, or the key is of another circuit"
    )
    (incident,) = [event for event in bench.events if isinstance(event, Incident)]
    assert incident.kind == "verification-failed"
    bench.assert_nothing_is_held()


def test_the_violated_constraint_is_named_when_the_circuit_lies_beside_the_key(tmp_path):
    item = case("bn128", "mul_pub")
    for name in ("circuit.zkey", "circuit.r1cs"):
        (tmp_path / name).write_bytes(item.path(name).read_bytes())
    path = witness_file(tmp_path, lambda v: [*v[:-1], (v[-1] + 1) % BN254.r])
    with pytest.raises(ProofInvalidError, match=r"; constraint \d of circuit.r1cs, counted from 0, is the first"):
        Bench().runner.prove(tmp_path / "circuit.zkey", path, ME)
    # A circuit that has nothing to do with the key says nothing.
    (tmp_path / "circuit.r1cs").write_bytes(case("bn128", "mul_out").path("circuit.r1cs").read_bytes())
    with pytest.raises(ProofInvalidError, match=r"key is of another circuit$"):
        Bench().runner.prove(tmp_path / "circuit.zkey", path, ME)


@pytest.mark.parametrize(("key", "witness"), [("bn128", "bls12381"), ("bls12381", "bn128")])
def test_a_witness_of_the_other_curve(key, witness):
    files = case(key, "mul_pub").path("circuit.zkey"), case(witness, "mul_pub").path("witness.wtns")
    with pytest.raises(FormatError, match=r"witness is for B.*, the key .* for B"):
        Bench().runner.prove(*files, ME)


@pytest.mark.parametrize("name", sorted(path.name for path in BROKEN.glob("*.zkey") if path.name != "good.zkey"))
def test_broken_keys(name):
    bench = Bench()
    with pytest.raises(FormatError, match=f"{name}: "):
        bench.runner.prove(BROKEN / name, BROKEN / "good.wtns", ME)
    bench.assert_nothing_is_held()


@pytest.mark.parametrize("name", sorted(path.name for path in BROKEN.glob("*.wtns") if path.name != "good.wtns"))
def test_broken_witnesses(name):
    bench = Bench()
    with pytest.raises(FormatError, match=f"{name}: "):
        bench.runner.prove(BROKEN / "good.zkey", BROKEN / name, ME)
    bench.assert_nothing_is_held()


def test_a_key_of_another_circuit_with_the_same_sizes():
    """mul_initial has the circuit of mul_pub under another key; chain keys of one size differ in nothing but their
    toxic waste."""
    item, other = case("bn128", "mul_pub"), case("bn128", "mul_initial")
    outcome = Bench().runner.prove(other.path("circuit.zkey"), item.path("witness.wtns"), ME)
    verify(VerificationKey.read(other.path("verification_key.json")), outcome.public.values, outcome.proof)
    with pytest.raises(ProofInvalidError):
        verify(VerificationKey.read(item.path("verification_key.json")), outcome.public.values, outcome.proof)


def test_a_bad_point_that_the_check_let_through_is_caught_by_the_verification(tmp_path, monkeypatch):
    """With the check of points out of the way a spoiled key still never gives a proof."""
    monkeypatch.setattr("cuzk_engine.keys.check_points", lambda *args: None)
    parts = Parts.of((BROKEN / "good.zkey").read_bytes())
    path = tmp_path / "spoiled.zkey"
    path.write_bytes(parts.replace(9, put(64, 12345)).build())
    bench = Bench()
    with pytest.raises(ProofInvalidError, match="did not verify"):
        bench.runner.prove(path, BROKEN / "good.wtns", ME)
    bench.assert_nothing_is_held()


def test_a_key_that_changed_while_it_was_used(tmp_path, monkeypatch):
    path = tmp_path / "circuit.zkey"
    path.write_bytes((BROKEN / "good.zkey").read_bytes())
    bench = Bench()
    bench.prove(case("bn128", "mul_pub"))

    def spoil(phase, fraction):
        if phase == "msm":
            path.write_bytes(path.read_bytes())

    unsatisfied = witness_file(tmp_path, lambda v: [*v[:-1], (v[-1] + 1) % BN254.r])
    with pytest.raises(CuzkError, match=r"circuit\.zkey: the key changed while it was used"):
        bench.runner.prove(path, unsatisfied, ME, progress=spoil)
    assert str(path) not in [key.path for key in bench.runner.keys.loaded()]


def test_the_key_is_replaced_between_two_proofs(tmp_path):
    path = tmp_path / "circuit.zkey"
    item, other = case("bn128", "mul_pub"), case("bn128", "mul_initial")
    bench = Bench()
    for current in (item, other, item):
        path.write_bytes(current.path("circuit.zkey").read_bytes())
        outcome = bench.runner.prove(path, item.path("witness.wtns"), ME)
        verify(VerificationKey.read(current.path("verification_key.json")), outcome.public.values, outcome.proof)


def test_many_failures_leave_nothing(tmp_path):
    bench, item = Bench(), case("bn128", "mul_pub")
    unsatisfied = witness_file(tmp_path, lambda v: [*v[:-1], (v[-1] + 1) % BN254.r])
    before = threading.active_count()
    for _ in range(30):
        with pytest.raises(ProofInvalidError):
            bench.runner.prove(BROKEN / "good.zkey", unsatisfied, ME)
        with pytest.raises(FormatError):
            bench.runner.prove(BROKEN / "good.zkey", BROKEN / "truncated.wtns", ME)
    bench.prove(item)
    assert threading.active_count() == before
    bench.assert_nothing_is_held()
