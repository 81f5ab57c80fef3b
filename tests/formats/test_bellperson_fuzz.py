"""Damaged bellperson files: refused with one line, or read to the end. Nothing else may happen."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzk_engine.devices.base import CancelToken
from cuzk_engine.errors import FormatError
from cuzk_engine.formats.compressed_proof import decode_proofs, encode_proofs, looks_like_proofs
from cuzk_engine.formats.params import Params, structure_of, verifying_key_from
from cuzk_engine.formats.pce import Pce
from cuzk_engine.formats.source import SourceFile
from cuzk_engine.groth16.circuit import open_circuit
from cuzk_engine.native import Call, aligned
from cuzk_engine.params_keys import check_points
from tests.formats.builders import memory_below
from tests.formats.test_fuzz import EDITS, LIES, edit, one_line
from tests.support.bellperson import ToyKey, make_toy
from tests.support.cases import SAPLING_OUTPUT

TOY = make_toy(1, 2, 6)
KEY = ToyKey.of(TOY)
PROOF = (SAPLING_OUTPUT / "proof.bin").read_bytes()


def read_params(data):
    source = SourceFile.from_buffer(data, "key.params")
    key = Params.from_source(source)
    for view in (key.ic, key.h, key.l, key.a, key.b1, key.b2):
        int(view.sum())
    assert sum(section.size for section in key.sections) + 864 + 24 + key.trailing_bytes == len(data)
    assert structure_of(source) in ("params", None)  # None: a bad point in ic
    check_points(key, 1, CancelToken())
    assert np.array_equal(key.ic, np.frombuffer(KEY.params(), np.uint8)[868 : 868 + key.ic.size].reshape(-1, 96))


def read_vk(data):
    assert verifying_key_from(SourceFile.from_buffer(data, "key.vk")).n_public >= 0


def read_pce(data):
    system = Pce.from_source(SourceFile.from_buffer(data, "circuit.pce"))
    for matrix in system.matrices:
        int(matrix.row_ptr.sum()) + int(matrix.columns.sum()) + int(matrix.values.sum())
    for density in system.densities:
        assert int(density.bits().sum()) == density.ones


def read_proofs(data):
    proofs = decode_proofs(data, "proof.bin")
    assert encode_proofs(proofs) == data  # one encoding each
    assert looks_like_proofs(data)


READERS = {
    "params": (KEY.params(), read_params),
    "vk": (KEY.vk(), read_vk),
    "pce": (TOY.pce(), read_pce),
    "proof": (PROOF * 2, read_proofs),
}
PLACES = st.tuples(st.just("header"), st.sampled_from([0, 8, 16, 20, 32, 864, 868]), st.sampled_from(LIES))
samples = st.tuples(st.sampled_from(sorted(READERS)), st.lists(EDITS | PLACES, min_size=1, max_size=4))


def check(sample):
    kind, edits = sample
    good, reader = READERS[kind]
    data = edit(good, edits)
    with memory_below(4 << 20):
        try:
            reader(data)
        except FormatError as error:
            one_line(error)


def test_good_files_are_read():
    for good, reader in READERS.values():
        reader(good)


@settings(max_examples=400)
@given(samples)
def test_damaged_files(sample):
    check(sample)


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
@given(samples)
def test_damaged_files_for_long(sample):
    check(sample)


circuits = st.tuples(st.sampled_from(["pce", "r1cs"]), st.lists(EDITS | PLACES, min_size=1, max_size=3))


def check_circuit(sample, folder):
    """What the native library was told is sound is evaluated: an index out of range would be read out of bounds."""
    kind, edits = sample
    path = folder / "circuit"
    path.write_bytes(edit(getattr(TOY, kind)(), edits))
    try:
        circuit = open_circuit(path)
    except FormatError as error:
        one_line(error)
        return
    if circuit.n_vars > 1000 or circuit.domain_size > 1000:
        return  # counts that nothing in the file bounds, such as unused variables
    witness = aligned(32 * circuit.n_vars)
    witness[:] = 0
    vectors = [aligned(32 * circuit.domain_size) for _ in "abc"]
    circuit.evaluate(witness, circuit.domain_size, *vectors, Call(1))


@settings(max_examples=200)
@given(circuits)
def test_damaged_circuits(tmp_path_factory, sample):
    check_circuit(sample, tmp_path_factory.getbasetemp())


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
@given(circuits)
def test_damaged_circuits_for_long(tmp_path_factory, sample):
    check_circuit(sample, tmp_path_factory.getbasetemp())


@given(st.binary(max_size=1200))
def test_any_bytes(content):
    for reader in (read_params, read_vk, read_pce, read_proofs):
        with pytest.raises(FormatError):
            reader(content)
