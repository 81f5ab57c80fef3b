"""The profile ``sha256``: SHA-256 (FIPS 180-4) of a private message that fills N blocks with its padding.

Every wire but the constant and the digest, two public numbers of 128 bits, is a bit. A block's rows repeat with shifted
wires: its 256 last ones are the hash value, which the next block starts from.

``_compress`` describes a block once, for two machines: one makes the rows, the other the wires' values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from cuzk_engine.curves import Curve
from cuzk_engine.workload.field import constants, small
from cuzk_engine.workload.rows import ONE, Circuit, Piece, RowBuilder, Template, Values, local

_BLOCK_BYTES: Final = 64
_PADDING_BYTES: Final = 9  # 0x80 and the length
_MASK: Final = 0xFFFFFFFF
_BLOCKS_AT_ONCE: Final = 8

Word = TypeVar("Word")
Bit = int | None  # a wire; None is 0


def _primes(count: int) -> list[int]:
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % prime for prime in found):
            found.append(number)
        number += 1
    return found


def _root_bits(number: int, degree: int) -> int:
    """The first 32 bits of the fractional part of a square or cube root."""
    scaled = number << (32 * degree)
    low, high = 0, 1 << 40
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**degree <= scaled else (low, middle)
    return low & _MASK


K: Final = tuple(_root_bits(prime, 3) for prime in _primes(64))
INITIAL: Final = tuple(_root_bits(prime, 2) for prime in _primes(8))


class _Machine(Protocol[Word]):
    """What a block is made of; words of 32 bits."""

    def rotate(self, x: Word, by: int) -> Word: ...
    def shift(self, x: Word, by: int) -> Word: ...
    def xor3(self, x: Word, y: Word, z: Word) -> Word: ...
    def choose(self, e: Word, f: Word, g: Word) -> Word: ...
    def majority(self, a: Word, b: Word, c: Word) -> Word: ...
    def add(self, groups: Sequence[Sequence[Word | int]]) -> list[Word]:
        """A sum modulo 2^32 for each group of words and constants; the sums take the last wires."""


def _compress(m: _Machine[Word], state: Sequence[Word], message: Sequence[Word]) -> list[Word]:
    w = list(message)
    for t in range(16, 64):
        s0 = m.xor3(m.rotate(w[t - 15], 7), m.rotate(w[t - 15], 18), m.shift(w[t - 15], 3))
        s1 = m.xor3(m.rotate(w[t - 2], 17), m.rotate(w[t - 2], 19), m.shift(w[t - 2], 10))
        w += m.add([[w[t - 16], s0, w[t - 7], s1]])
    a, b, c, d, e, f, g, h = state
    for t in range(64):
        s1 = m.xor3(m.rotate(e, 6), m.rotate(e, 11), m.rotate(e, 25))
        s0 = m.xor3(m.rotate(a, 2), m.rotate(a, 13), m.rotate(a, 22))
        one: list[Word | int] = [h, s1, m.choose(e, f, g), K[t], w[t]]
        next_e, next_a = m.add([[d, *one], [*one, s0, m.majority(a, b, c)]])
        a, b, c, d, e, f, g, h = next_a, a, b, c, next_e, e, f, g
    return m.add([[x, y] for x, y in zip(state, (a, b, c, d, e, f, g, h), strict=True)])


def _carry_bits(words: int) -> int:
    """Bits above the lowest 32 of a sum of so many words."""
    return (words * _MASK).bit_length() - 32


class _RowMachine:
    """Words are lists of wires, least significant bit first."""

    def __init__(self, rows: RowBuilder, first: int) -> None:
        self._rows = rows
        self.next = first  # number of the next local wire

    def allocate(self, bits: int) -> list[Bit]:
        wires: list[Bit] = [local(self.next + i) for i in range(bits)]
        self.next += bits
        return wires

    def rotate(self, x: list[Bit], by: int) -> list[Bit]:
        return x[by:] + x[:by]

    def shift(self, x: list[Bit], by: int) -> list[Bit]:
        return x[by:] + [None] * by

    def xor3(self, x: list[Bit], y: list[Bit], z: list[Bit]) -> list[Bit]:
        both = self.allocate(sum(bit is not None for bit in z))  # y z
        out = self.allocate(32)
        for i in range(32):
            a, b, c, o = x[i], y[i], z[i], out[i]
            assert a is not None
            assert b is not None
            assert o is not None
            if c is None:
                self._rows.row({a: 2}, {b: 1}, {a: 1, b: 1, o: -1})
                continue
            bc = both[i]
            assert bc is not None
            self._rows.row({b: 1}, {c: 1}, {bc: 1})
            self._rows.row({a: 1}, {ONE: 1, b: -2, c: -2, bc: 4}, {o: 1, b: -1, c: -1, bc: 2})
        return out

    def choose(self, e: list[Bit], f: list[Bit], g: list[Bit]) -> list[Bit]:
        out = self.allocate(32)
        for x, y, z, o in zip(e, f, g, out, strict=True):
            self._row({x: 1}, {y: 1, z: -1}, {o: 1, z: -1})
        return out

    def majority(self, a: list[Bit], b: list[Bit], c: list[Bit]) -> list[Bit]:
        both, out = self.allocate(32), self.allocate(32)
        for x, y, z, yz, o in zip(a, b, c, both, out, strict=True):
            self._row({y: 1}, {z: 1}, {yz: 1})
            self._row({x: 1}, {y: 1, z: 1, yz: -2}, {o: 1, yz: -1})
        return out

    def add(self, groups: Sequence[Sequence[list[Bit] | int]]) -> list[list[Bit]]:
        carries = [self.allocate(_carry_bits(len(group))) for group in groups]
        sums = [self.allocate(32) for _ in groups]
        for group, carry, total in zip(groups, carries, sums, strict=True):
            terms: dict[int, int] = {}

            def put(bits: Sequence[Bit], factor: int, to: dict[int, int] = terms) -> None:
                for i, bit in enumerate(bits):
                    if bit is not None:
                        to[bit] = to.get(bit, 0) + (factor << i)

            for word in group:
                if isinstance(word, int):
                    terms[ONE] = word
                else:
                    put(word, 1)
            put(total + carry, -1)
            for bit in (*total, *carry):
                assert bit is not None
                self._rows.boolean(bit)
            self._rows.row(terms, {ONE: 1}, {})
        return sums

    def _row(self, *combinations: dict[Bit, int]) -> None:
        a, b, c = ({wire: k for wire, k in each.items() if wire is not None} for each in combinations)
        self._rows.row(a, b, c)


class _ValueMachine:
    """Words are numbers; ``made`` collects them, and how many bits each has, in the order of the wires."""

    def __init__(self) -> None:
        self.made: list[tuple[int, int]] = []

    def allocate(self, value: int, bits: int) -> int:
        self.made.append((value, bits))
        return value

    def rotate(self, x: int, by: int) -> int:
        return (x >> by | x << (32 - by)) & _MASK

    def shift(self, x: int, by: int) -> _Shifted:
        return _Shifted(x >> by, 32 - by)

    def xor3(self, x: int, y: int, z: int) -> int:
        self.allocate(y & z, z.bits if isinstance(z, _Shifted) else 32)
        return self.allocate(x ^ y ^ z, 32)

    def choose(self, e: int, f: int, g: int) -> int:
        return self.allocate(e & f ^ ~e & g, 32)

    def majority(self, a: int, b: int, c: int) -> int:
        self.allocate(b & c, 32)
        return self.allocate(a & b ^ a & c ^ b & c, 32)

    def add(self, groups: Sequence[Sequence[int]]) -> list[int]:
        totals = [sum(group) for group in groups]
        for group, total in zip(groups, totals, strict=True):
            self.allocate(total >> 32, _carry_bits(len(group)))
        return [self.allocate(total & _MASK, 32) for total in totals]

    def wires(self) -> Values:
        numbers = np.array([value for value, _ in self.made], np.uint64)
        widths = np.array([bits for _, bits in self.made])
        places = np.arange(32, dtype=np.uint64)
        bits = numbers[:, np.newaxis] >> places & np.uint64(1)
        return small(bits[places < widths[:, np.newaxis]])


class _Shifted(int):
    """A word whose highest bits are known to be 0."""

    bits: int

    def __new__(cls, value: int, bits: int) -> _Shifted:
        made = super().__new__(cls, value)
        made.bits = bits
        return made


def message_of(n_blocks: int) -> bytes:
    """What is hashed: as long as fits into so many blocks."""
    generator = np.random.default_rng(n_blocks)
    return generator.bytes(_BLOCK_BYTES * n_blocks - _PADDING_BYTES)


def sha256(n_blocks: int, curve: Curve) -> Circuit:
    first = 3 + 256  # the constant, two outputs, the initial hash value
    # A block's local wires: -256 … -1 the hash value before it, 0 … 511 the message, then what is made of them.
    state = [[local(-256 + 32 * word + bit) for bit in range(32)] for word in range(8)]
    rows = RowBuilder(curve)
    machine: Any = _RowMachine(rows, 512)
    _compress(machine, state, [[local(32 * word + bit) for bit in range(32)] for word in range(16)])
    size = machine.next
    last = first + size * (n_blocks - 1)
    pieces = (
        Piece(_constants(curve, INITIAL, 256), first),
        Piece(_message_bits(curve, 512), first, size, n_blocks - 1),
        Piece(_last_message(curve, n_blocks), last),
        Piece(rows.template(), first, size, n_blocks),
        Piece(_outputs(curve), first + size * n_blocks),
    )
    n_wires = first + size * n_blocks
    return Circuit(f"sha256:{n_blocks}", curve, 2, 0, 0, n_wires, pieces, lambda: _values(n_blocks))


def _constants(curve: Curve, words: Sequence[int], back: int) -> Template:
    """The wires that lie ``back`` before the base hold these words."""
    rows = RowBuilder(curve)
    for number, word in enumerate(words):
        for bit in range(32):
            rows.row({local(32 * number + bit - back): 1}, {ONE: 1}, {ONE: 1} if word >> bit & 1 else {})
    return rows.template()


def _message_bits(curve: Curve, count: int) -> Template:
    rows = RowBuilder(curve)
    for number in range(count):
        rows.boolean(local(number))
    return rows.template()


def _last_message(curve: Curve, n_blocks: int) -> Template:
    """Bits of the message, then the padding: a fixed bit each."""
    padding = b"\x80" + (8 * (_BLOCK_BYTES * n_blocks - _PADDING_BYTES)).to_bytes(8, "big")
    rows = RowBuilder(curve)
    for number in range(_BLOCK_BYTES):
        for bit in range(8):
            wire = local(32 * (number // 4) + 8 * (3 - number % 4) + bit)
            at = number - (_BLOCK_BYTES - _PADDING_BYTES)
            if at < 0:
                rows.boolean(wire)
            else:
                rows.row({wire: 1}, {ONE: 1}, {ONE: 1} if padding[at] >> bit & 1 else {})
    return rows.template()


def _outputs(curve: Curve) -> Template:
    """The digest's halves, as numbers: its first byte is the highest."""
    rows = RowBuilder(curve)
    for half in range(2):
        terms = {
            local(-256 + 128 * half + 32 * word + bit): 1 << (32 * (3 - word) + bit)
            for word in range(4)
            for bit in range(32)
        }
        rows.row(terms, {ONE: 1}, {1 + half: 1})
    return rows.template()


def _values(n_blocks: int) -> Iterator[Values]:
    message = message_of(n_blocks)
    digest = hashlib.sha256(message).digest()
    yield constants((1, int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:], "big")))
    padded = message + b"\x80" + (8 * len(message)).to_bytes(8, "big")
    machine = _ValueMachine()
    state = [machine.allocate(word, 32) for word in INITIAL]
    for number in range(n_blocks):
        block = padded[_BLOCK_BYTES * number : _BLOCK_BYTES * (number + 1)]
        words = [machine.allocate(int.from_bytes(block[at : at + 4], "big"), 32) for at in range(0, _BLOCK_BYTES, 4)]
        state = _compress(machine, state, words)
        if number % _BLOCKS_AT_ONCE == _BLOCKS_AT_ONCE - 1:
            yield machine.wires()
            machine.made.clear()
    if machine.made:
        yield machine.wires()
    if b"".join(word.to_bytes(4, "big") for word in state) != digest:
        raise ArithmeticError("the circuit's hash value is not SHA-256's")
