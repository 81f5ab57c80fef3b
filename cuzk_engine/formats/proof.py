"""proof.json, public.json and verification_key.json, as snarkjs reads and writes them.

Coordinates are plain integers. Readers check form and range; that points lie on their curves is for the verifier.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from cuzk_engine.curves import G1_INFINITY, G2_INFINITY, Curve, G1Point, G2Point
from cuzk_engine.errors import FormatError
from cuzk_engine.formats.json_input import Fields, field_element, load_json
from cuzk_engine.formats.points import decode_g1, decode_g2, integers
from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.units import format_count

MAX_PROOF_BYTES: Final = 64 << 10  # real ones have 1.2 KB
# A public signal takes up to 82 bytes, its point in the verification key up to 250: room for 200,000 of them.
MAX_PUBLIC_BYTES: Final = 16 << 20
MAX_VERIFICATION_KEY_BYTES: Final = 64 << 20
VALUE_BYTES: Final = 32
"""Of a public signal, plain and little-endian."""
_LITTLE: Final[repeat[Literal["little"]]] = repeat("little")
_PROOF: Final = """{
 "pi_a": [
  "%s",
  "%s",
  "%s"
 ],
 "pi_b": [
  [
   "%s",
   "%s"
  ],
  [
   "%s",
   "%s"
  ],
  [
   "%s",
   "%s"
  ]
 ],
 "pi_c": [
  "%s",
  "%s",
  "%s"
 ],
 "protocol": "groth16",
 "curve": "%s"
}"""


@dataclass(frozen=True)
class Proof:
    """A Groth16 proof, affine."""

    curve: Curve
    a: G1Point
    b: G2Point
    c: G1Point

    @classmethod
    def read(cls, path: Path | str, curve: Curve | None = None) -> Proof:
        """Reads proof.json.

        With `curve`, a proof of another one is refused, and a proof that names none (some provers leave it out) is
        taken to be of that curve.
        """
        return cls.from_document(load_json(path, "a proof", MAX_PROOF_BYTES), path, curve)

    @classmethod
    def from_document(cls, document: Any, path: Path | str, curve: Curve | None = None) -> Proof:
        """Like `read`, from decoded JSON; `path` is for messages."""
        fields = Fields(path, "a proof", document)
        fields.protocol()
        found = curve if curve is not None and not fields.has("curve") else fields.curve()
        if curve is not None and found is not curve:
            fields.fail(f"proof is for {found.title}, the verification key for {curve.title}")
        return cls(found, fields.g1(found, "pi_a"), fields.g2(found, "pi_b"), fields.g1(found, "pi_c"))

    def to_json(self) -> str:
        """As snarkjs writes it, to the byte."""
        # The encoder takes longer for indented lists than to make decimals of all values.
        x, y, z = _g2_json(self.b)
        return _PROOF % (*_g1_json(self.a), *x, *y, *z, *_g1_json(self.c), self.curve.snarkjs_name)


class EncodedProof(NamedTuple):
    """A proof as the native library makes it. ``data``: the points A, B and C as a key's, affine in Montgomery form;
    then their eight coordinates in the same order, plain."""

    curve: Curve
    data: bytes

    def decoded(self) -> Proof:
        size = self.curve.n8q
        values = struct.unpack_from(f"{size}s" * 8, self.data, 8 * size)
        ax, ay, bx0, bx1, by0, by1, cx, cy = map(int.from_bytes, values, _LITTLE)
        return Proof(self.curve, (ax, ay), ((bx0, bx1), (by0, by1)), (cx, cy))


@dataclass(frozen=True)
class PublicSignals:
    """The public signals of a proof, outputs first, without the constant 1."""

    values: tuple[int, ...]

    @classmethod
    def read(cls, path: Path | str, curve: Curve | None = None, count: int | None = None) -> PublicSignals:
        """Reads public.json; values must be below the prime of the curve's scalar field, and `count` of them."""
        return cls.from_document(load_json(path, "public signals", MAX_PUBLIC_BYTES), path, curve, count)

    @classmethod
    def from_document(
        cls, document: Any, path: Path | str, curve: Curve | None = None, count: int | None = None
    ) -> PublicSignals:
        """Like `read`, from decoded JSON; `path` is for messages."""
        if not isinstance(document, list):
            raise FormatError(path, "holds no list, expected public signals: a JSON list of decimal strings")
        if count is not None and len(document) != count:
            found = f"has {format_count(len(document), 'public signal')}"
            raise FormatError(path, f"{found}, the verification key expects {count:,}")
        prime, title = (None, "") if curve is None else (curve.r, f"{curve.title}'s scalar field")
        values = (
            field_element(path, value, f"public signal {index}", prime, title) for index, value in enumerate(document)
        )
        return cls(tuple(values))

    @classmethod
    def from_bytes(cls, data: bytes) -> PublicSignals:
        """Of plain values, 32 bytes each, little-endian."""
        return cls(tuple(integers(data, VALUE_BYTES)))

    def to_json(self) -> str:
        """As snarkjs writes it, to the byte: an empty list is [ and ] on two lines."""
        # The encoder takes longer for indented lists than to make decimals of all values.
        rows = ",".join(f'\n "{value}"' for value in self.values)
        return f"[{rows}\n]"


@dataclass(frozen=True)
class VerificationKey:
    """A Groth16 verification key, affine."""

    curve: Curve
    alpha1: G1Point
    beta2: G2Point
    gamma2: G2Point
    delta2: G2Point
    ic: tuple[G1Point, ...]  # of the constant 1, then of each public signal

    @property
    def n_public(self) -> int:
        return len(self.ic) - 1

    @classmethod
    def read(cls, path: Path | str) -> VerificationKey:
        """Reads verification_key.json. `vk_alphabeta_12`, which follows from the other values, is not looked at."""
        document = load_json(path, "a verification key", MAX_VERIFICATION_KEY_BYTES)
        return cls.from_document(document, path)

    @classmethod
    def from_document(cls, document: Any, path: Path | str) -> VerificationKey:
        """Like `read`, from decoded JSON; `path` is for messages."""
        fields = Fields(path, "a verification key", document)
        fields.protocol()
        curve = fields.curve()
        n_public = fields.count("nPublic")
        ic = fields.get("IC")
        if not isinstance(ic, list):
            fields.fail("IC is not a list, expected one point more than public signals")
        if len(ic) != n_public + 1:
            fields.fail(f"IC has {format_count(len(ic), 'point')}, expected {n_public + 1:,} for nPublic {n_public:,}")
        return cls(
            curve,
            fields.g1(curve, "vk_alpha_1"),
            fields.g2(curve, "vk_beta_2"),
            fields.g2(curve, "vk_gamma_2"),
            fields.g2(curve, "vk_delta_2"),
            tuple(fields.g1_value(curve, point, f"IC[{index}]") for index, point in enumerate(ic)),
        )

    @classmethod
    def from_zkey(cls, zkey: ZKey) -> VerificationKey:
        """The verification key that belongs to a proving key."""
        curve = zkey.curve
        return cls(
            curve,
            decode_g1(curve, zkey.alpha1),
            decode_g2(curve, zkey.beta2),
            decode_g2(curve, zkey.gamma2),
            decode_g2(curve, zkey.delta2),
            tuple(decode_g1(curve, point.tobytes()) for point in zkey.ic),
        )

    def to_json(self, alphabeta: Sequence[int] | None = None) -> str:
        """As snarkjs writes it.

        `alphabeta` is e(alpha1, beta2) as 12 plain Fq values, lowest coefficient first, in the tower of
        kernels/cuzk.h; without it `vk_alphabeta_12` is left out, which snarkjs's verifier does not miss.
        """
        document: dict[str, Any] = {
            "protocol": "groth16",
            "curve": self.curve.snarkjs_name,
            "nPublic": self.n_public,
            "vk_alpha_1": _g1_json(self.alpha1),
            "vk_beta_2": _g2_json(self.beta2),
            "vk_gamma_2": _g2_json(self.gamma2),
            "vk_delta_2": _g2_json(self.delta2),
        }
        if alphabeta is not None:
            if len(alphabeta) != 12:
                raise ValueError(f"{len(alphabeta)} coefficients of GT, expected 12")
            pairs = [[str(alphabeta[index]), str(alphabeta[index + 1])] for index in range(0, 12, 2)]
            document["vk_alphabeta_12"] = [pairs[:3], pairs[3:]]
        document["IC"] = [_g1_json(point) for point in self.ic]
        return _dump(document)


def public_lists(
    document: Any, path: Path | str, curve: Curve | None, count: int | None, proofs: int
) -> list[PublicSignals]:
    """The public signals of several proofs, from decoded JSON: a list of lists, one a proof; of one proof also as in
    public.json. Raises FormatError."""
    if proofs == 1 and isinstance(document, list) and not any(isinstance(item, list) for item in document):
        return [PublicSignals.from_document(document, path, curve, count)]
    if not isinstance(document, list) or not all(isinstance(item, list) for item in document):
        raise FormatError(path, f"holds no list of lists, expected the public signals of {proofs:,} proofs")
    if len(document) != proofs:
        raise FormatError(path, f"has the public signals of {len(document):,} proofs, expected those of {proofs:,}")
    return [PublicSignals.from_document(item, path, curve, count) for item in document]


def public_lists_json(publics: Sequence[PublicSignals]) -> str:
    """What `public_lists` reads."""
    return _dump([[str(value) for value in public.values] for public in publics])


def _g1_json(point: G1Point) -> list[str]:
    return ["0", "1", "0"] if point == G1_INFINITY else [str(point[0]), str(point[1]), "1"]


def _g2_json(point: G2Point) -> list[list[str]]:
    if point == G2_INFINITY:
        return [["0", "0"], ["1", "0"], ["0", "0"]]
    (x0, x1), (y0, y1) = point
    return [[str(x0), str(x1)], [str(y0), str(y1)], ["1", "0"]]


def _dump(document: Any) -> str:
    return json.dumps(document, indent=1)
