"""The profile ``porep``: the proportions of one partition of a 32 GiB PoRep.

Constraints 0.97 × domain; non-zeros a row A 2.37, B 1.00, C 2.17; four of five private values 0 or 1; every private
signal in A, every second one in B.

Rows come in groups of five, one of which makes

    v    a bit                        (1 − v) · v = 0
    c1   v ⊕ v of the group before    2 v · v' = v + v' − c1
    c2   c1 ⊕ v of two groups before
    c3   c2 ⊕ v of three groups before, or (odd groups) ⊕ c1 of the group before
    y    a field element: (c1 + 2 c2 + 4 c3 + K y' + 1 + v' [+ c3']) · y' = y [+ T v], y' of ``lag`` groups before

The terms in brackets stand in 17 of 20 groups. The first ``lag`` groups are bits and random elements without products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cuzk_engine.curves import Curve
from cuzk_engine.workload.field import Vectors, constants, random_elements, small
from cuzk_engine.workload.rows import ONE, Circuit, Piece, RowBuilder, Template, Values, local

_SEED: Final = 2026
_MOST_PUBLIC: Final = 327  # as many as the real circuit has, without the constant
_GROUP: Final = 5
_CYCLE: Final = 20  # groups
_LONG: Final = 17  # groups of a cycle with the terms in brackets
_V, _C1, _C2, _C3, _Y = range(_GROUP)
_K: Final = 0x1F3D5B79A2C4E6081F3D5B79A2C4E6081F3D5B79A2C4E608
_T: Final = 0x2B992DDFA232497300000000000000000000000000000005

Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class _Shape:
    """How many of what there are."""

    curve: Curve
    n_rows: int
    n_public: int
    lag: int

    @classmethod
    def of(cls, log_domain: int, curve: Curve) -> _Shape:
        domain = 1 << log_domain
        n_rows = round(0.97 * domain)
        return cls(curve, n_rows, min(_MOST_PUBLIC, max(1, domain >> 10)), max(4, min(1024, n_rows // 10240)))

    @property
    def n_grouped(self) -> int:
        """Rows of the groups with products, and what is left of less than a group: without the rows that bind public
        inputs, the bits of the first groups and the sum."""
        return self.n_rows - self.n_public - 4 * self.lag - 1

    @property
    def n_groups(self) -> int:
        return self.n_grouped // _GROUP

    @property
    def n_loose(self) -> int:
        """Bits outside the groups."""
        return self.n_grouped % _GROUP

    @property
    def first(self) -> int:
        """The wire of the first group."""
        return 1 + self.n_public

    @property
    def first_loose(self) -> int:
        return self.first + _GROUP * (self.lag + self.n_groups)

    @property
    def total(self) -> int:
        """The wire of the sum of the last y."""
        return self.first_loose + self.n_loose

    @property
    def n_wires(self) -> int:
        return self.total + 1


def porep(log_domain: int, curve: Curve) -> Circuit:
    shape = _Shape.of(log_domain, curve)
    start = shape.first + _GROUP * shape.lag
    cycles, rest = divmod(shape.n_groups, _CYCLE)
    pieces = (
        Piece(_bindings(shape)),
        Piece(_first_group(curve), shape.first, _GROUP, shape.lag),
        Piece(_groups(shape, _CYCLE), start, _GROUP * _CYCLE, cycles),
        Piece(_groups(shape, rest), start + _GROUP * _CYCLE * cycles),
        Piece(_ending(shape)),
    )
    name = f"porep:2^{log_domain}"
    return Circuit(name, curve, 0, shape.n_public, 0, shape.n_wires, pieces, lambda: _values(shape))


# ---- rows ----


def _bindings(shape: _Shape) -> Template:
    """Public input i is the y of group i."""
    rows = RowBuilder(shape.curve)
    for i in range(shape.n_public):
        rows.row({shape.first + _GROUP * i + _Y: 1}, {ONE: 1}, {1 + i: 1})
    return rows.template()


def _first_group(curve: Curve) -> Template:
    rows = RowBuilder(curve)
    for member in (_V, _C1, _C2, _C3):
        rows.boolean(local(member))
    return rows.template()


def _groups(shape: _Shape, count: int) -> Template:
    """The rows of ``count`` groups, the first of which is number 0 of a cycle and even."""
    rows = RowBuilder(shape.curve)

    def xor(a: int, b: int, out: int) -> None:
        rows.row({a: 2}, {b: 1}, {a: 1, b: 1, out: -1})

    for number in range(count):

        def wire(member: int, back: int = 0, at: int = _GROUP * number) -> int:
            return local(at + member - _GROUP * back)

        rows.boolean(wire(_V))
        xor(wire(_V), wire(_V, 1), wire(_C1))
        xor(wire(_C1), wire(_V, 2), wire(_C2))
        xor(wire(_C2), wire(_C1, 1) if number % 2 else wire(_V, 3), wire(_C3))
        before = wire(_Y, shape.lag)
        a = {wire(_C1): 1, wire(_C2): 2, wire(_C3): 4, before: _K, ONE: 1, wire(_V, 1): 1}
        c = {wire(_Y): 1}
        if number < _LONG:
            a[wire(_C3, 1)] = 1
            c[wire(_V)] = _T
        rows.row(a, {before: 1}, c)
    return rows.template()


def _ending(shape: _Shape) -> Template:
    """The loose bits, and the last ``lag`` y, which no group uses: their sum, too, stands in A."""
    rows = RowBuilder(shape.curve)
    for i in range(shape.n_loose):
        rows.boolean(shape.first_loose + i)
    ys = {shape.first + _GROUP * (shape.n_groups + i) + _Y: 1 for i in range(shape.lag)}
    rows.row({**ys, shape.total: 1}, {ONE: 1}, {shape.total: 2})
    return rows.template()


# ---- values ----


def _values(shape: _Shape) -> Iterator[Values]:
    """The witness: first what the public inputs need, then group by group."""
    generator = np.random.default_rng(_SEED)
    field = Vectors(shape.curve)
    held: list[Values] = []  # groups up to the last y that is public
    last: Values | None = None
    started = False
    for groups, end in _walk(shape, generator, field):
        last = end
        if started:
            yield groups
            continue
        held.append(groups)
        if sum(map(len, held)) >= _GROUP * shape.n_public:
            joined = np.concatenate(held)
            yield constants((1,))
            yield np.ascontiguousarray(joined[_Y::_GROUP][: shape.n_public])
            yield joined
            held.clear()
            started = True
    yield small(generator.integers(0, 2, shape.n_loose))
    assert last is not None
    yield field.to_plain(field.sum(last))


def _walk(shape: _Shape, generator: np.random.Generator, field: Vectors) -> Iterator[tuple[Values, Values]]:
    """Groups, at most ``lag`` of them at a time, as (5 n, 4) plain values; with each the last ``lag`` y in Montgomery
    form."""
    lag = shape.lag
    bits = generator.integers(0, 2, (lag, 4), dtype=np.uint8)
    y = random_elements(generator, lag)
    yield _joined(bits, field.to_plain(y)), y
    integers = field.from_plain(small(np.arange(16)))
    of_v = field.from_plain(constants((0, _T)))
    k = field.from_plain(constants((_K,) * lag))
    for begin in range(0, shape.n_groups, lag):
        count = min(lag, shape.n_groups - begin)
        before, y_before = bits, np.ascontiguousarray(y[:count])
        bits = _next_bits(before, begin, generator.integers(0, 2, count, dtype=np.uint8))
        long = (begin + np.arange(count)) % _CYCLE < _LONG
        v_before, c3_before = (np.concatenate((before[-1:, m], bits[:-1, m])) for m in (_V, _C3))
        number = bits[:, _C1] + 2 * bits[:, _C2] + 4 * bits[:, _C3] + 1 + v_before + c3_before * long
        a = field.add(integers[number], field.multiply(np.ascontiguousarray(k[:count]), y_before))
        made = field.subtract(field.multiply(a, y_before), of_v[bits[:, _V] * long])
        yield _joined(bits, field.to_plain(made)), np.concatenate((y[count:], made))
        y = np.concatenate((y[count:], made))


def _next_bits(before: Bits, begin: int, v: Bits) -> Bits:
    """(n, 4): v, c1, c2, c3 of the groups from number ``begin`` on; ``before``: those of the groups before them."""
    vs = np.concatenate((before[-3:, _V], v))
    c1 = v ^ vs[2:-1]
    c2 = c1 ^ vs[1:-2]
    odd = (begin + np.arange(len(v))) % 2 == 1  # a cycle has an even number of groups
    c3 = c2 ^ np.where(odd, np.concatenate((before[-1:, _C1], c1[:-1])), vs[:-3])
    return np.stack((v, c1, c2, c3), axis=1)


def _joined(bits: Bits, y: Values) -> Values:
    out = np.zeros((len(bits), _GROUP, 4), np.uint64)
    out[:, :_Y, 0] = bits
    out[:, _Y] = y
    return out.reshape(-1, 4)
