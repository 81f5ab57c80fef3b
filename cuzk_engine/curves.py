"""The two pairing-friendly curves of the engine, their constants, and names for the primes of others.

All numbers here are plain (not Montgomery) Python integers. Fq2 is Fq[u]/(u^2 + 1), written (c0, c1) for c0 + c1*u.
BN254 is the curve of EIP-196/197; BLS12-381 is draft-irtf-cfrg-pairing-friendly-curves, section 4.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

Fq2Value = tuple[int, int]
# Affine plain coordinates. The point at infinity is all zero: (0, 0) lies on neither curve, since b is not 0.
G1Point = tuple[int, int]
G2Point = tuple[Fq2Value, Fq2Value]

G1_INFINITY: Final[G1Point] = (0, 0)
G2_INFINITY: Final[G2Point] = ((0, 0), (0, 0))


@dataclass(frozen=True, eq=False)
class Curve:
    """One curve with its fields and groups. There are two instances, so curves are compared by identity.

    G1 is y^2 = x^3 + b over Fq; G2 is y^2 = x^3 + b2 over Fq2, on the sextic twist.
    """

    id: int  # cuzk_curve of kernels/cuzk.h
    name: str  # how the engine's interfaces write it
    title: str  # how people read it
    snarkjs_name: str  # how snarkjs's files write it
    q: int  # prime of the base field
    r: int  # prime of the scalar field: the order of G1, G2 and GT
    limbs: int  # 64-bit limbs of an Fq element
    two_adicity: int  # largest s with 2^s dividing r - 1
    b: int
    b2: Fq2Value
    g1: G1Point  # generators
    g2: G2Point

    def __repr__(self) -> str:
        return f"<Curve {self.name}>"

    def __reduce__(self) -> tuple[object, ...]:
        # Another process, or a deep copy, gets its own instance of the two, so that identity still compares.
        return (curve_by_name, (self.name,))

    @cached_property
    def n8q(self) -> int:
        """Bytes of an Fq element."""
        return 8 * self.limbs

    @cached_property
    def n8r(self) -> int:
        """Bytes of an Fr element."""
        return 32

    @cached_property
    def g1_bytes(self) -> int:
        """Bytes of an uncompressed affine G1 point."""
        return 2 * self.n8q

    @cached_property
    def g2_bytes(self) -> int:
        """Bytes of an uncompressed affine G2 point."""
        return 4 * self.n8q

    @property
    def max_domain(self) -> int:
        """Largest evaluation domain: the order of the 2-power roots of unity of Fr."""
        return 1 << self.two_adicity

    @cached_property
    def fq_montgomery(self) -> int:
        """R = 2^(64*limbs) mod q: x*R mod q is x in Montgomery form."""
        return (1 << (64 * self.limbs)) % self.q

    @cached_property
    def fq_montgomery_inverse(self) -> int:
        return pow(self.fq_montgomery, -1, self.q)


BN254: Final = Curve(
    id=0,
    name="bn254",
    title="BN254",
    snarkjs_name="bn128",
    q=21888242871839275222246405745257275088696311157297823662689037894645226208583,
    r=21888242871839275222246405745257275088548364400416034343698204186575808495617,
    limbs=4,
    two_adicity=28,
    b=3,
    b2=(
        19485874751759354771024239261021720505790618469301721065564631296452457478373,
        266929791119991161246907387137283842545076965332900288569378510910307636690,
    ),
    g1=(1, 2),
    g2=(
        (
            10857046999023057135944570762232829481370756359578518086990519993285655852781,
            11559732032986387107991004021392285783925812861821192530917403151452391805634,
        ),
        (
            8495653923123431417604973247489272438418190587263600148770280649306958101930,
            4082367875863433681332203403145435568316851327593401208105741076214120093531,
        ),
    ),
)

BLS12_381: Final = Curve(
    id=1,
    name="bls12_381",
    title="BLS12-381",
    snarkjs_name="bls12381",
    q=0x1A0111EA397FE69A4B1BA7B6434BACD764774B84F38512BF6730D2A0F6B0F6241EABFFFEB153FFFFB9FEFFFFFFFFAAAB,
    r=0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001,
    limbs=6,
    two_adicity=32,
    b=4,
    b2=(4, 4),
    g1=(
        0x17F1D3A73197D7942695638C4FA9AC0FC3688C4F9774B905A14E3A3F171BAC586C55E83FF97A1AEFFB3AF00ADB22C6BB,
        0x08B3F481E3AAA0F1A09E30ED741D8AE4FCF5E095D5D00AF600DB18CB2C04B3EDD03CC744A2888AE40CAA232946C5E7E1,
    ),
    g2=(
        (
            0x024AA2B2F08F0A91260805272DC51051C6E47AD4FA403B02B4510B647AE3D1770BAC0326A805BBEFD48056C8C121BDB8,
            0x13E02B6052719F607DACD3A088274F65596BD0D09920B61AB5DA61BBDC7F5049334CF11213945D57E5AC7D055D042B7E,
        ),
        (
            0x0CE5D527727D6E118CC9CDC6DA2E351AADFD9BAA8CBDD3A76D429A695160D12C923AC9CC3BACA289E193548608B82801,
            0x0606C4A02EA734CC32ACD2B02BC28B99CB3E287E85A763AF267492AB572E99AB3F370D275CEC1DA1AAA9075FF05F79BE,
        ),
    ),
)

CURVES: Final = (BN254, BLS12_381)

SUPPORTED: Final = "BN254 or BLS12-381"  # for messages: "expected BN254 or BLS12-381"

_PRIME_NAMES: Final[dict[int, str]] = {
    (1 << 64) - (1 << 32) + 1: "Goldilocks",
    (1 << 31) - 1: "Mersenne-31",
    (1 << 31) - (1 << 27) + 1: "BabyBear",
    (1 << 31) - (1 << 24) + 1: "KoalaBear",
    (1 << 255) - 19: "Curve25519's base field",
    (1 << 252) + 27742317777372353535851937790883648493: "Curve25519's scalar field",
    (1 << 256) - (1 << 32) - 977: "secp256k1's base field",
    0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141: "secp256k1's scalar field",
    (1 << 256) - (1 << 224) + (1 << 192) + (1 << 96) - 1: "secp256r1's base field (circom's secq256r1)",
    0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551: "secp256r1's scalar field",
    0x40000000000000000000000000000000224698FC094CF91B992D30ED00000001: "Pallas's base field (Vesta's scalar field)",
    0x40000000000000000000000000000000224698FC0994A8DD8C46EB2100000001: "Vesta's base field (Pallas's scalar field)",
    0x12AB655E9A2CA55660B44D1E5C37B00159AA76FED00000010A11800000000001: "BLS12-377's scalar field",
    0x1AE3A4617C510EAC63B05C06CA1493B1A22D9F300F5138F1EF3622FBA094800170B5D44300000008508C00000000001: (
        "BLS12-377's base field"
    ),
    BN254.q: "BN254's base field (Grumpkin's scalar field)",
    BN254.r: "BN254's scalar field",
    BLS12_381.q: "BLS12-381's base field",
    BLS12_381.r: "BLS12-381's scalar field",
}


def curve_by_q(q: int) -> Curve | None:
    """The curve over the base field of q elements."""
    return next((curve for curve in CURVES if curve.q == q), None)


def curve_by_r(r: int) -> Curve | None:
    """The curve whose groups have order r."""
    return next((curve for curve in CURVES if curve.r == r), None)


def curve_by_id(number: int) -> Curve | None:
    """The curve with the number that kernels/cuzk.h gives it."""
    return next((curve for curve in CURVES if curve.id == number), None)


def curve_by_name(name: str) -> Curve | None:
    """The curve of that name, in the engine's, snarkjs's or the usual spelling ("BLS12-381", "alt_bn128", ...)."""
    plain = "".join(character for character in name.lower() if character.isalnum())
    if plain in ("bn254", "bn128", "altbn128"):
        return BN254
    return BLS12_381 if plain == "bls12381" else None


def curve_title(name: str) -> str:
    """As people read it; ``name`` in any of its spellings, one that is not known as it is."""
    curve = curve_by_name(name)
    return name if curve is None else curve.title


def describe_prime(prime: int) -> str:
    """A prime as a message shows it: the field's name where it is known, else the number in hexadecimal.

    Numbers over 400 bits are shortened, so that a damaged header cannot make a long line.
    """
    known = _PRIME_NAMES.get(prime)
    if known is not None:
        return known
    digits = f"{prime:x}"
    return f"unknown prime 0x{digits}" if len(digits) <= 100 else f"unknown prime 0x{digits[:24]}…{digits[-24:]}"
