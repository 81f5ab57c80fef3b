"""Damaged files: a reader refuses with one line, or what it returns can be read to the end. Nothing else may happen."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuzk_engine.errors import FormatError
from cuzk_engine.formats.json_input import load_json
from cuzk_engine.formats.proof import Proof, PublicSignals, VerificationKey
from cuzk_engine.formats.r1cs import R1cs
from cuzk_engine.formats.source import SourceFile
from cuzk_engine.formats.wtns import Witness
from cuzk_engine.formats.zkey import ZKey
from tests.formats.builders import memory_below
from tests.support.cases import BROKEN, TINY_CASES

BINARY = {"circuit.zkey": ZKey, "witness.wtns": Witness, "circuit.r1cs": R1cs}
JSON = {"proof.json": Proof, "public.json": PublicSignals, "verification_key.json": VerificationKey}
LIES = [0, 1, 2, 0x7F, 0x80, 0xFF, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]

EDITS = st.one_of(
    st.tuples(st.just("byte"), st.floats(0, 1), st.integers(0, 255)),
    st.tuples(st.just("word"), st.floats(0, 1), st.sampled_from(LIES)),
    st.tuples(st.just("header"), st.integers(0, 160), st.sampled_from(LIES)),
    st.tuples(st.just("cut"), st.floats(0, 1), st.none()),
    st.tuples(st.just("insert"), st.floats(0, 1), st.binary(max_size=40)),
    st.tuples(st.just("remove"), st.floats(0, 1), st.integers(1, 64)),
    st.tuples(st.just("copy"), st.floats(0, 1), st.floats(0, 1)),
)


def edit(data, edits):
    data = bytearray(data)
    for kind, place, value in edits:
        at = place if kind == "header" else int(place * len(data))
        if kind == "byte":
            data[at : at + 1] = bytes([value])
        elif kind in ("word", "header"):
            size = 8 if value >= 2**32 else 4
            data[at : at + size] = value.to_bytes(size, "little")
        elif kind == "cut":
            del data[at:]
        elif kind == "insert":
            data[at:at] = value
        elif kind == "remove":
            del data[at : at + value]
        else:
            start = int(value * len(data))
            data[at:at] = data[start : start + 64]
    return bytes(data)


def read_to_the_end(item):
    if isinstance(item, ZKey):
        VerificationKey.from_zkey(item).to_json()
        for view in (item.coefficients, item.a, item.b1, item.b2, item.l, item.h):
            int(view.sum())
    elif isinstance(item, Witness):
        int(item.raw.sum())
        item.public_values(3)
    else:
        assert len(list(item.constraints())) == item.header.n_constraints
        for which in range(3):
            matrix = item.matrix(which)
            assert len(matrix.wires) == len(matrix.values) == matrix.row_ptr[-1]


def one_line(error):
    assert "\n" not in str(error)
    assert len(str(error)) < 600


binary_input = st.tuples(
    st.sampled_from(sorted(BINARY)), st.sampled_from(TINY_CASES), st.lists(EDITS, min_size=1, max_size=4)
)


def check_binary(sample):
    file, item, edits = sample
    data = edit(item.path(file).read_bytes(), edits)
    with memory_below(4 << 20):
        try:
            read_to_the_end(BINARY[file].from_source(SourceFile.from_buffer(data, file)))
        except FormatError as error:
            one_line(error)


@settings(max_examples=400)
@given(binary_input)
def test_damaged_containers(sample):
    check_binary(sample)


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
@given(binary_input)
def test_damaged_containers_for_long(sample):
    check_binary(sample)


json_input = st.tuples(
    st.sampled_from(sorted(JSON)), st.sampled_from(TINY_CASES), st.lists(EDITS, min_size=1, max_size=4)
)


def check_json(sample, path):
    file, item, edits = sample
    path.write_bytes(edit(item.path(file).read_bytes(), edits))
    try:
        found = JSON[file].read(path)
    except FormatError as error:
        one_line(error)
    else:
        assert JSON[file].from_document(json.loads(found.to_json()), path) == found


@settings(max_examples=200)
@given(json_input)
def test_damaged_json(tmp_path_factory, sample):
    check_json(sample, tmp_path_factory.getbasetemp() / "damaged.json")


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
@given(json_input)
def test_damaged_json_for_long(tmp_path_factory, sample):
    check_json(sample, tmp_path_factory.getbasetemp() / "damaged.json")


documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["0", "1"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["pi_a", "IC", "curve"]), inner),
    max_leaves=10,
)


@settings(max_examples=200)
@given(st.sampled_from(sorted(JSON)), st.sampled_from(TINY_CASES), st.data())
def test_any_value_in_the_place_of_an_item(file, item, data):
    document = item.json(file)
    keys = sorted(document) if isinstance(document, dict) else list(range(len(document)))
    if keys:
        document[data.draw(st.sampled_from(keys))] = data.draw(documents)
    try:
        JSON[file].from_document(document, file)
    except FormatError as error:
        one_line(error)


@given(st.binary(max_size=300))
def test_any_bytes(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "bytes"
    path.write_bytes(content)
    for reader in BINARY.values():
        with pytest.raises(FormatError):
            reader.open(path)
    try:
        load_json(path, "a proof", 1000)
    except FormatError as error:
        one_line(error)


def test_every_byte_of_a_key_inverted():
    data = (BROKEN / "good.zkey").read_bytes()
    outcomes = set()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0xFF
        try:
            read_to_the_end(ZKey.from_source(SourceFile.from_buffer(damaged, "key")))
            outcomes.add("read")
        except FormatError as error:
            one_line(error)
            outcomes.add("refused")
    # Structure is refused; the bytes of points and coefficients are for the native library to judge.
    assert outcomes == {"read", "refused"}
