"""Saved constraint systems (.pce): their structure, and every way in which it can be broken."""

import struct

import numpy as np
import pytest

from cuzk_engine.errors import FormatError, IncompleteFileError
from cuzk_engine.formats.identify import FileKind, describe
from cuzk_engine.formats.pce import Pce
from cuzk_engine.formats.source import SourceFile
from tests.formats.builders import memory_below, put
from tests.support.bellperson import R, make_toy

TOY = make_toy(2, 3, 70)  # a bitmap of two words
DATA = TOY.pce()


def read(data):
    return Pce.from_source(SourceFile.from_buffer(data, "circuit.pce"))


def places():
    """Name, offset of the count, count, bytes an element, for every array of the file."""
    found, position = [], 32
    for matrix in "ABC":
        for name, size in (("row pointers", 4), ("columns", 4), ("values", 32)):
            (count,) = struct.unpack_from("<Q", DATA, position)
            found.append((f"matrix {matrix}, {name}", position, count, size))
            position += 8 + count * size
    for name in ("auxiliary variables in A", "inputs in B", "auxiliary variables in B"):
        (count,) = struct.unpack_from("<Q", DATA, position)
        found.append((f"bitmap of {name}", position, count, 8))
        position += 8 + count * 8 + 16
    assert position == len(DATA)
    return found


PLACES = places()


def refused(data, error=FormatError):
    with memory_below(4 << 20), pytest.raises(error) as caught:
        read(data)
    message = str(caught.value)
    assert message.startswith("circuit.pce: ")
    assert "\n" not in message
    return message


def test_a_system():
    system = read(DATA)
    assert (system.n_inputs, system.n_aux, system.n_vars) == (3, 70, 73)
    assert system.n_constraints == len(TOY.all_rows)
    assert repr(system) == f"<Pce circuit.pce: {len(TOY.all_rows)} constraints, 73 variables>"
    for which, matrix in enumerate(system.matrices):
        rows = [sorted(row[which].items()) for row in TOY.all_rows]
        pointers = matrix.row_ptr.view("<u4")
        assert pointers.tolist() == np.cumsum([0, *map(len, rows)]).tolist()
        terms = [term for row in rows for term in row]
        assert matrix.n_terms == len(terms)
        assert matrix.columns.view("<u4").tolist() == [column for column, _ in terms]
        values = [int.from_bytes(value.tobytes(), "little") for value in matrix.values.reshape(-1, 32)]
        assert values == [value * (1 << 256) % R for _, value in terms]
    for density in system.densities:
        assert density.bits().sum() == density.ones
        assert len(density.bits()) == density.n_bits


def test_description(tmp_path):
    path = tmp_path / "pce-toy.bin"
    path.write_bytes(DATA)
    description = describe(path)
    assert description.kind is FileKind.PCE
    expected = {"inputs": 3, "auxiliary_variables": 70, "constraints": len(TOY.all_rows), "terms_C": 70}
    assert {name: description.fields[name] for name in expected} == expected


@pytest.mark.parametrize("size", [0, 1, 3, 4, 31])
def test_short_headers(size):
    error = FormatError if size == 0 else IncompleteFileError
    assert "empty" in refused(DATA[:size], error) or f"the file has {size}" in refused(DATA[:size], error)


def test_truncation_everywhere():
    for size in range(32, len(DATA), 3):
        with pytest.raises(IncompleteFileError):
            read(DATA[:size])


@pytest.mark.parametrize(("name", "offset", "count", "size"), PLACES)
def test_counts(name, offset, count, size):
    for lie in (2**63, 2**64 - 1, 2**40, count + 1, count - 1, 0):
        if lie >= 0:
            message = refused(put(offset, lie, 8)(DATA))
            assert name in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put(0, 0x01454350, 4), "this is no such file: it starts with b'PCE\\x01'"),
        (put(4, 3), "version 3 of a saved constraint system (pce), expected version 2"),
        (put(8, 0), "header says 0 inputs, expected at least the constant 1"),
        (put(8, 2**32 - 1), "variables, expected fewer than 2^32"),
        (put(8, 4), "bitmap of inputs in B has 3 bits, expected 4"),
        (put(12, 71), "bitmap of auxiliary variables in A has 70 bits, expected 71"),
        (put(16, 2**32 - 1), "matrix A, row pointers: "),
        (put(20, 1, 8), "header says 1 term, the matrices have "),
        (lambda data: data + b"\x00", "goes on for 1 bytes after the last bitmap"),
        (lambda data: b"<html>" + b" " * 1000, "this is an HTML page, perhaps from a failed download"),
        (lambda data: b"r1cs" + data[4:], "this is a constraint system (r1cs), expected a saved"),
    ],
)
def test_headers_that_lie(change, message):
    assert message in refused(change(DATA))


def test_bitmaps_that_lie():
    _, offset, words, _ = PLACES[9]
    (ones,) = struct.unpack_from("<Q", DATA, offset + 8 + 8 * words + 8)
    flipped = put(offset + 8, DATA[offset + 8] ^ 1, 1)(DATA)
    assert f"bitmap of auxiliary variables in A says {ones:,} ones, it has" in refused(flipped)
    last = offset + 8 + 8 * words - 1
    beyond = put(offset + 8 + 8 * words + 8, ones + 1, 8)(put(last, 0x80, 1)(DATA))
    assert "has ones after its 70 bits" in refused(beyond)
