"""The profiles: their numbers, witnesses that satisfy them, and what is written."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
from dataclasses import dataclass

import numpy as np
import pytest

from cuzk_engine.curves import BN254, CURVES, Curve
from cuzk_engine.errors import CuzkError, UsageError
from cuzk_engine.formats.r1cs import CsrMatrix, R1cs, first_unsatisfied
from cuzk_engine.formats.source import SourceFile
from cuzk_engine.formats.wtns import Witness
from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.native import library
from cuzk_engine.workload.make import in_memory, verification_key_json, write_folder
from cuzk_engine.workload.profiles import make_circuit
from cuzk_engine.workload.rows import Circuit
from cuzk_engine.workload.sha256 import INITIAL, K, message_of
from tests.formats.builders import memory_below
from tests.support.cases import SMALL_CASES, Case
from tests.support.keys import open_zkey
from tests.support.native_proof import NativeProof

curves = pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)


@dataclass
class Made:
    """A circuit, and what was written of it, read again."""

    circuit: Circuit
    system: R1cs
    witness: Witness

    @classmethod
    def of(cls, profile: str, curve: Curve) -> Made:
        circuit = make_circuit(profile, curve)
        system, witness = io.BytesIO(), io.BytesIO()
        circuit.write_r1cs(system)
        circuit.write_wtns(witness)
        return cls(
            circuit,
            R1cs.from_source(SourceFile.from_buffer(system.getvalue(), "circuit.r1cs")),
            Witness.from_buffer(witness.getvalue()),
        )

    @property
    def n_rows(self) -> int:
        return self.system.header.n_constraints

    @property
    def n_private(self) -> int:
        return self.system.header.n_wires - self.system.header.n_public - 1

    def terms_a_row(self) -> list[float]:
        return [len(self.system.matrix(which).wires) / self.n_rows for which in range(3)]

    def density(self, which: int) -> float:
        """Share of the private signals that stand in a matrix."""
        matrix: CsrMatrix = self.system.matrix(which)
        used = np.unique(matrix.wires)
        return float(np.count_nonzero(used > self.system.header.n_public)) / self.n_private

    def share_of_bits(self) -> float:
        """Share of the private values that are 0 or 1."""
        private = np.ascontiguousarray(self.witness.raw[self.system.header.n_public + 1 :])
        zeros, ones, _ = library().fr_classify(self.circuit.curve, private, len(private))
        return (zeros + ones) / self.n_private


@curves
@pytest.mark.parametrize(
    "profile",
    [
        "chain:2^3",
        "chain:2^4",
        "chain:2^9",
        "dense:2^3",
        "dense:2^4",
        "dense:2^11",
        "porep:2^8",
        "porep:2^9",
        "porep:2^12",
    ],
)
def test_the_witness_satisfies_every_row(profile: str, curve: Curve) -> None:
    made = Made.of(profile, curve)
    assert first_unsatisfied(made.system, made.witness) is None
    header = made.system.header
    facts = (header.n_constraints, header.n_wires, header.n_public)
    assert facts == (made.circuit.n_constraints, made.circuit.n_wires, made.circuit.n_public)


@curves
@pytest.mark.parametrize("log_domain", [3, 4, 10])
def test_chain(curve: Curve, log_domain: int) -> None:
    made = Made.of(f"chain:2^{log_domain}", curve)
    assert made.n_rows + made.circuit.n_public + 1 == made.circuit.domain_size == 1 << log_domain
    assert made.terms_a_row() == [1, 1, 2]
    assert made.density(0) == made.density(1) == 1
    result, k, x = (int.from_bytes(made.witness.raw[i].tobytes(), "little") for i in (1, 2, 3))
    for _ in range(made.n_rows):
        x = (x * x + k) % curve.r
    assert x == result


def test_a_chain_of_several_pieces() -> None:
    made = Made.of("chain:2^17", BN254)
    values = made.witness.values
    native = make_circuit("chain:2^17", BN254)
    assert made.n_rows == (1 << 17) - 3 == native.n_constraints
    for wire in (3, 65536 + 2, 65536 + 3, 65536 + 4, (1 << 17) - 2):
        x, following = (int.from_bytes(values[i].tobytes(), "little") for i in (wire, wire + 1))
        assert (x * x + 5 - following) % BN254.r == 0


@curves
@pytest.mark.parametrize("log_domain", [8, 12, 13])
def test_dense(curve: Curve, log_domain: int) -> None:
    made = Made.of(f"dense:2^{log_domain}", curve)
    assert made.n_rows + made.circuit.n_public + 1 == made.circuit.domain_size == 1 << log_domain
    assert made.density(0) == 1
    assert made.density(1) == pytest.approx(0.5, abs=0.01)
    assert made.share_of_bits() == 0
    assert len(np.unique(made.witness.values, axis=0)) == len(made.witness)


@curves
@pytest.mark.parametrize("log_domain", [12, 13, 15])
def test_porep(curve: Curve, log_domain: int) -> None:
    made = Made.of(f"porep:2^{log_domain}", curve)
    domain = 1 << log_domain
    assert made.circuit.domain_size == domain
    assert made.n_rows == round(0.97 * domain)
    assert made.terms_a_row() == pytest.approx([2.37, 1.0, 2.17], abs=0.02)
    assert made.terms_a_row()[1] == 1
    assert made.density(0) == 1
    assert made.density(1) == pytest.approx(0.5, abs=0.005)
    assert made.share_of_bits() == pytest.approx(0.8, abs=0.002)
    # As many private signals as constraints, as in the real circuit.
    assert made.n_private == pytest.approx(made.n_rows, rel=0.01)


def test_porep_comes_closer_with_size() -> None:
    made = Made.of("porep:2^17", BN254)
    assert made.terms_a_row() == pytest.approx([2.37, 1.0, 2.17], abs=0.005)
    assert made.share_of_bits() == pytest.approx(0.8, abs=0.0005)


def test_porep_has_the_real_number_of_public_inputs() -> None:
    assert make_circuit("porep:2^20", BN254).n_public == 327
    assert make_circuit("porep:2^12", BN254).n_public == 4


@pytest.mark.parametrize(("blocks", "curve"), [(1, CURVES[0]), (1, CURVES[1]), (3, CURVES[0])])
def test_sha256(blocks: int, curve: Curve) -> None:
    made = Made.of(f"sha256:{blocks}", curve)
    digest = hashlib.sha256(message_of(blocks)).digest()
    public = made.witness.public_values(2)
    assert public == (int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:], "big"))
    assert first_unsatisfied(made.system, made.witness) is None
    assert made.share_of_bits() == 1
    assert made.circuit.domain_size >= made.n_rows + 3 > made.circuit.domain_size // 2


def test_sha256_of_more_blocks_than_are_made_at_once() -> None:
    """The last block of 17 stands where the file says, behind two pieces of eight."""
    circuit = make_circuit("sha256:17", BN254)
    out = io.BytesIO()
    circuit.write_wtns(out)
    witness = Witness.from_buffer(out.getvalue())
    assert len(witness) == circuit.n_wires
    bits = witness.values[-256:, 0].reshape(8, 32)
    words = [sum(int(bit) << i for i, bit in enumerate(word)) for word in bits]
    assert b"".join(word.to_bytes(4, "big") for word in words) == hashlib.sha256(message_of(17)).digest()


def test_the_message_fills_its_blocks() -> None:
    for blocks in (1, 2, 5):
        assert len(message_of(blocks)) + 9 == 64 * blocks


def test_constants_of_sha256() -> None:
    assert (INITIAL[0], INITIAL[7], K[0], K[63]) == (0x6A09E667, 0x5BE0CD19, 0x428A2F98, 0xC67178F2)


def test_no_bit_of_sha256_can_be_changed() -> None:
    """Every wire is fixed by the rows once the message is: any other value of any wire breaks one."""
    made = Made.of("sha256:1", BN254)
    n = len(made.witness)
    for wire in (*range(1, 4), 259, 259 + 300, *np.random.default_rng(1).integers(800, n, 6), n - 1):
        values = made.witness.raw.copy()
        values[wire, 0] ^= 1
        changed = Witness(made.witness.source, BN254, values)
        assert first_unsatisfied(made.system, changed) is not None, wire


@curves
@pytest.mark.parametrize("profile", ["chain:2^8", "dense:2^8", "porep:2^8", "sha256:1"])
def test_keys_of_profiles_prove(profile: str, curve: Curve) -> None:
    key, witness = in_memory(make_circuit(profile, curve))
    proof = NativeProof(library(), open_zkey(key), Witness.from_buffer(witness))
    assert proof.verifies(proof.prove())


@pytest.mark.parametrize("profile", ["chain:2^5", "dense:2^9", "porep:2^10", "sha256:1"])
def test_the_same_circuit_and_witness_each_time(profile: str) -> None:
    first, second = (Made.of(profile, BN254) for _ in range(2))
    assert first.system.source.data.tobytes() == second.system.source.data.tobytes()
    assert first.witness.raw.tobytes() == second.witness.raw.tobytes()


class Counter:
    """A file that keeps nothing."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: bytes | memoryview) -> int:
        self.size += len(data)
        return len(data)


@pytest.mark.parametrize("profile", ["chain:2^19", "dense:2^19", "porep:2^18", "sha256:40"])
def test_files_larger_than_the_memory_they_take(profile: str) -> None:
    circuit = make_circuit(profile, BN254)
    system, witness = Counter(), Counter()
    with memory_below(40 << 20):
        circuit.write_r1cs(system)
        circuit.write_wtns(witness)
    assert system.size > 50 << 20
    assert witness.size == 12 + 24 + 40 + 32 * circuit.n_wires


@pytest.mark.parametrize("item", SMALL_CASES, ids=str)
def test_the_verification_key_is_the_one_that_snarkjs_exports(item: Case) -> None:
    made = verification_key_json(ZKey.open(item.path("circuit.zkey")))
    assert json.loads(made) == item.json("verification_key.json")


# ---- names ----


@pytest.mark.parametrize(
    "profile",
    [
        "",
        "chain",
        "chain:",
        "chain:16",
        "chain:2^",
        "chain:2^x",
        "chain:2^-3",
        "sha256:2^3",
        "sha256:-1",
        "plonk:2^4",
        "chain:2^16 ",
        "chain:2^१०",
    ],
)
def test_unknown_profiles(profile: str) -> None:
    with pytest.raises(UsageError, match=r"(is not known,|has another form, .*;) expected one like chain:2"):
        make_circuit(profile, BN254)


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("chain:2^2", "chain:2^3 to chain:2^24"),
        ("chain:2^25", "chain:2^3 to chain:2^24"),
        ("porep:2^7", "porep:2^8 to porep:2^24"),
        ("sha256:0", "sha256:1 to sha256:"),
        ("sha256:999999999", "sha256:1 to sha256:"),
    ],
)
def test_sizes_out_of_range(profile: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_circuit(profile, BN254)
    assert expected in str(caught.value)


@curves
def test_the_largest_sizes_fit_the_largest_domain(curve: Curve) -> None:
    for profile in ("chain:2^24", "dense:2^24", "porep:2^24", "sha256:580"):
        assert make_circuit(profile, curve).domain_size == 1 << 24


# ---- folders ----


def test_a_folder_gets_all_files_or_none(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "new"
    circuit = make_circuit("chain:2^4", BN254)
    seen: list[float] = []
    write_folder(circuit, folder, progress=lambda phase, share: seen.append(share))
    names = ["circuit.r1cs", "circuit.zkey", "verification_key.json", "witness.wtns"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert seen == sorted(seen)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def stop(phase: str, share: float) -> None:
        if phase == "H query":
            raise KeyboardInterrupt

    for place in (folder, tmp_path / "other"):
        with pytest.raises(KeyboardInterrupt):
            write_folder(make_circuit("chain:2^5", BN254), place, replace=True, progress=stop)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert not (tmp_path / "other").exists()


def test_files_that_came_meanwhile_stay(tmp_path) -> None:
    """Two commands make the same at the same time: the slower one replaces nothing."""
    folder = tmp_path / "new"

    def meanwhile(phase: str, share: float) -> None:
        (folder / "circuit.zkey").write_bytes(b"theirs")

    with pytest.raises(CuzkError, match=r"new: has circuit\.zkey already; name another folder, or give --force"):
        write_folder(make_circuit("chain:2^4", BN254), folder, progress=meanwhile)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"circuit.zkey": b"theirs"}


def test_a_folder_in_the_place_of_a_file(tmp_path) -> None:
    (tmp_path / "circuit.zkey").mkdir()
    with pytest.raises(CuzkError, match=r"circuit\.zkey: cannot be written: is a folder"):
        write_folder(make_circuit("chain:2^3", BN254), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["circuit.zkey"]


def test_a_full_disk_names_the_file_that_was_asked_for(tmp_path, monkeypatch) -> None:
    write = os.write

    def full(descriptor: int, data: bytes | memoryview) -> int:
        if bytes(data[:4]) == b"zkey":
            raise OSError(errno.ENOSPC, "full")
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    folder = tmp_path / "w"
    with pytest.raises(CuzkError) as caught:
        write_folder(make_circuit("chain:2^3", BN254), folder)
    assert str(caught.value) == f"{folder / 'circuit.zkey'}: cannot be written: no space left on the device"
    assert not folder.exists()


def test_a_folder_that_cannot_be_made(tmp_path) -> None:
    file = tmp_path / "file"
    file.touch()
    for place in (file, file / "below", tmp_path / "missing" / "below"):
        with pytest.raises(CuzkError, match=str(place)):
            write_folder(make_circuit("chain:2^3", BN254), place)
