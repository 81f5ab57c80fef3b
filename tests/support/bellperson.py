"""Toy circuits with bellperson keys, made here from the definitions of Groth16 and of the format alone.

The groups are arkworks's; the fields are Python integers. Nothing of the prover is used.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import py_arkworks_bls12381 as arkworks

from cuzk_engine.curves import BLS12_381
from tests.formats import builders

R, Q = BLS12_381.r, BLS12_381.q
ROOT = pow(7, (R - 1) >> 32, R)  # bellman's root of unity, of order 2^32

Combination = dict[int, int]
Row = tuple[Combination, Combination, Combination]
SECTIONS = ("ic", "h", "l", "a", "b_g1", "b_g2")


@dataclass(frozen=True)
class Toy:
    """Variables: the constant, public inputs, auxiliary ones; rows without those that bellperson adds for inputs."""

    n_inputs: int
    values: list[int]
    rows: list[Row]

    @property
    def n_vars(self) -> int:
        return len(self.values)

    @property
    def public(self) -> list[int]:
        return self.values[1 : self.n_inputs]

    @property
    def all_rows(self) -> list[Row]:
        return self.rows + [({index: 1}, {}, {}) for index in range(self.n_inputs)]

    @property
    def domain(self) -> int:
        return 1 << (len(self.all_rows) - 1).bit_length()

    def with_value(self, index: int, value: int) -> Toy:
        return replace(self, values=[value if k == index else old for k, old in enumerate(self.values)])

    def wtns(self) -> bytes:
        return builders.wtns(R, self.values)

    def r1cs(self) -> bytes:
        rows = [tuple(list(part.items()) for part in row) for row in self.rows]
        return builders.r1cs(BLS12_381, rows, n_wires=self.n_vars, public_inputs=self.n_inputs - 1)  # type: ignore[arg-type]

    def pce(self) -> bytes:
        n_aux = self.n_vars - self.n_inputs
        parts, total = [], 0
        for which in range(3):
            rows = [sorted(row[which].items()) for row in self.all_rows]
            pointers = [0]
            for row in rows:
                pointers.append(pointers[-1] + len(row))
            terms = [term for row in rows for term in row]
            total += len(terms)
            parts.append(_array("<I", pointers) + _array("<I", [column for column, _ in terms]))
            values = b"".join((value * (1 << 256) % R).to_bytes(32, "little") for _, value in terms)
            parts.append(struct.pack("<Q", len(terms)) + values)
        present = [{k for row in self.all_rows for k, value in row[which].items() if value} for which in range(2)]
        for which, first, n in ((0, self.n_inputs, n_aux), (1, 0, self.n_inputs), (1, self.n_inputs, n_aux)):
            bits = [k for k in range(n) if first + k in present[which]]
            words = [sum(1 << (k % 64) for k in bits if k // 64 == word) for word in range(-(-n // 64))]
            parts.append(_array("<Q", words) + struct.pack("<QQ", n, len(bits)))
        header = struct.pack("<4sIIIIQI", b"PCE\x02", 2, self.n_inputs, n_aux, len(self.all_rows), total, 0)
        return header + b"".join(parts)


def make_toy(seed: int, n_inputs: int = 3, n_aux: int = 9, witness: int = 0) -> Toy:
    """Random rows (combination) · (combination) = new variable; some variables stand in no B, some in no A.

    ``seed`` makes the rows, ``witness`` the values that are free.
    """
    rng, chance = random.Random(seed), random.Random(f"{seed} {witness}")
    free = min(2, n_aux)
    values = [1] + [chance.randrange(R) for _ in range(n_inputs - 1 + free)]
    rows: list[Row] = []

    def combination(left_out: Callable[[int], bool]) -> Combination:
        known = [k for k in range(len(values)) if not left_out(k)]
        return {
            k: rng.choice([1, R - 1, rng.randrange(1, R)])
            for k in rng.sample(known, min(len(known), rng.randint(1, 3)))
        }

    def value(terms: Combination) -> int:
        return sum(values[k] * coefficient for k, coefficient in terms.items()) % R

    while len(values) < n_inputs + n_aux:
        a, b = combination(lambda k: k % 5 == 4), combination(lambda k: k % 2 == 1 and k > 0)
        values.append(value(a) * value(b) % R)
        rows.append((a, b, {len(values) - 1: 1}))
    for k in range(n_inputs, n_inputs + free):  # no variable without a constraint
        rows.append(({k: 1}, {0: 1}, {k: 1}))
    return Toy(n_inputs, values, rows)


@dataclass
class ToyKey:
    """A proving key, as lists of points (arkworks) that a test may change before it calls `params`."""

    header: list[object]  # alpha_g1, beta_g1, beta_g2, gamma_g2, delta_g1, delta_g2
    sections: dict[str, list[object]]
    trailing: bytes = field(default=b"")

    @classmethod
    def of(cls, toy: Toy, seed: int = 1) -> ToyKey:
        rng = random.Random(seed)
        alpha, beta, gamma, delta, tau = (rng.randrange(2, R) for _ in range(5))
        n = toy.domain
        omega = pow(ROOT, (1 << 32) // n, R)
        z = (pow(tau, n, R) - 1) % R
        lagrange = [z * pow(omega, i, R) * pow(n * (tau - pow(omega, i, R)), -1, R) % R for i in range(n)]
        u, v, w = ([0] * toy.n_vars for _ in range(3))
        for i, row in enumerate(toy.all_rows):
            for column, part in zip((u, v, w), row, strict=True):
                for k, coefficient in part.items():
                    column[k] = (column[k] + coefficient * lagrange[i]) % R
        ext = [(beta * u[k] + alpha * v[k] + w[k]) % R for k in range(toy.n_vars)]
        by_gamma, by_delta = pow(gamma, -1, R), pow(delta, -1, R)
        assert all(ext), "a variable has no constraint"
        inputs = toy.n_inputs
        sections = {
            "ic": [_g1(value * by_gamma) for value in ext[:inputs]],
            "h": [_g1(pow(tau, i, R) * z * by_delta) for i in range(n - 1)],
            "l": [_g1(value * by_delta) for value in ext[inputs:]],
            "a": [_g1(value) for value in u if value],
            "b_g1": [_g1(value) for value in v if value],
            "b_g2": [_g2(value) for value in v if value],
        }
        return cls([_g1(alpha), _g1(beta), _g2(beta), _g2(gamma), _g1(delta), _g2(delta)], sections)

    def vk(self) -> bytes:
        return b"".join(encode(point) for point in self.header) + self._section("ic")

    def params(self) -> bytes:
        return self.vk() + b"".join(self._section(name) for name in SECTIONS[1:]) + self.trailing

    def _section(self, name: str) -> bytes:
        points = self.sections[name]
        return struct.pack(">I", len(points)) + b"".join(encode(point) for point in points)


def section_places(data: bytes) -> dict[str, tuple[int, int, int]]:
    """Of each section: offset of the first point, count, bytes a point."""
    places, position = {}, 864
    for name in SECTIONS:
        (count,) = struct.unpack_from(">I", data, position)
        size = 192 if name == "b_g2" else 96
        places[name] = (position + 4, count, size)
        position += 4 + count * size
    return places


def encode(point: object) -> bytes:
    """The zcash encoding, uncompressed, from arkworks's little-endian coordinates."""
    raw = bytes(point.to_xy_bytes_le())  # type: ignore[attr-defined]
    parts = [raw[start : start + 48][::-1] for start in range(0, len(raw), 48)]
    return b"".join(parts) if len(parts) == 2 else b"".join((parts[1], parts[0], parts[3], parts[2]))


def _g1(value: int) -> object:
    return arkworks.G1Point() * arkworks.Scalar(value % R)


def _g2(value: int) -> object:
    return arkworks.G2Point() * arkworks.Scalar(value % R)


def _array(code: str, values: list[int]) -> bytes:
    return struct.pack("<Q", len(values)) + b"".join(struct.pack(code, value) for value in values)
