#!/usr/bin/env python3
"""Derive the constants of the pairings and print kernels/pairing/constants.hpp.

    python tools/pairing_constants.py > kernels/pairing/constants.hpp
    python tools/pairing_constants.py --check     # exit code 1 when the header is not what this script prints

Both curves are families: the curve parameter x fixes q, r, the length of the Miller loop and the hard part of the final
exponentiation. Every identity that the C++ code relies on is asserted here before anything is printed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

HEADER = Path(__file__).resolve().parent.parent / "kernels" / "pairing" / "constants.hpp"

Fq2 = tuple[int, int]


@dataclass(frozen=True)
class Curve:
    """A pairing-friendly curve y^2 = x^3 + b over Fq with a sextic twist over Fq2 = Fq[u]/(u^2 + 1)."""

    name: str
    x: int  # parameter of the family
    q: int
    r: int
    xi: Fq2  # Fq12 = Fq2[w]/(w^6 - xi)
    twist_b: Fq2  # b of the twist: b / xi (D) or b * xi (M)
    limbs: int


def fq2_mul(a: Fq2, b: Fq2, q: int) -> Fq2:
    return (a[0] * b[0] - a[1] * b[1]) % q, (a[0] * b[1] + a[1] * b[0]) % q


def fq2_pow(a: Fq2, e: int, q: int) -> Fq2:
    result = (1, 0)
    for bit in bin(e)[2:]:
        result = fq2_mul(result, result, q)
        if bit == "1":
            result = fq2_mul(result, a, q)
    return result


def fq2_inv(a: Fq2, q: int) -> Fq2:
    norm = pow(a[0] * a[0] + a[1] * a[1], -1, q)
    return a[0] * norm % q, -a[1] * norm % q


def signed_digits(n: int, width: int) -> list[int]:
    """Width-w non-adjacent form, most significant first: odd digits below 2^(w-1) in absolute value, or zero."""
    digits = []
    while n:
        digit = 0
        if n & 1:
            digit = n % (1 << width)
            if digit >= 1 << (width - 1):
                digit -= 1 << width
            n -= digit
        digits.append(digit)
        n >>= 1
    return digits[::-1]


def bn254() -> Curve:
    x = 4965661367192848881
    q = 36 * x**4 + 36 * x**3 + 24 * x**2 + 6 * x + 1
    r = 36 * x**4 + 36 * x**3 + 18 * x**2 + 6 * x + 1
    assert q == 21888242871839275222246405745257275088696311157297823662689037894645226208583
    xi = (9, 1)
    b = fq2_mul((3, 0), fq2_inv(xi, q), q)
    # The optimal ate lattice vector: 6x + 2 + q - q^2 + q^3 = 0 mod r.
    assert (6 * x + 2 + q - q**2 + q**3) % r == 0
    # Hard part of the final exponentiation, and its addition chain y0 y1^2 y2^6 y3^12 y4^18 y5^30 y6^36.
    hard = (q**4 - q**2 + 1) // r
    y = (q + q**2 + q**3, -1, x**2 * q**2, -x * q, -x - x**2 * q, -(x**2), -(x**3) - x**3 * q)
    assert hard == sum(a * e for a, e in zip(y, (1, 2, 6, 12, 18, 30, 36), strict=True))
    return Curve("Bn254", x, q, r, xi, b, 4)


def bls12_381() -> Curve:
    x = -0xD201000000010000
    r = x**4 - x**2 + 1
    q = (x - 1) ** 2 * r // 3 + x
    assert q == int(
        "1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab", 16
    )
    xi = (1, 1)
    b = fq2_mul((4, 0), xi, q)
    assert (x - q) % r == 0
    # Hard part: the middle factor is an integer because x = 1 mod 3.
    assert (1 - x) % 3 == 0
    hard = (q**4 - q**2 + 1) // r
    assert hard == (1 - x) ** 2 // 3 * (x + q) * (x**2 + q**2 - 1) + 1
    return Curve("Bls12_381", x, q, r, xi, b, 6)


def limbs(value: int, curve: Curve) -> str:
    """Montgomery form, least significant limb first."""
    value = value * (1 << (64 * curve.limbs)) % curve.q
    words = [f"0x{value >> (64 * i) & (1 << 64) - 1:016x}" for i in range(curve.limbs)]
    if curve.limbs == 4:
        return "{" + ", ".join(words) + "}"
    return "{" + ", ".join(words[:3]) + ",\n    " + ", ".join(words[3:]) + "}"


def fq2_limbs(value: Fq2, curve: Curve) -> str:
    return "{" + limbs(value[0], curve) + ",\n   " + limbs(value[1], curve) + "}"


def digit_array(name: str, comment: str, digits: list[int]) -> list[str]:
    rows = [", ".join(str(d) for d in digits[i : i + 32]) for i in range(0, len(digits), 32)]
    body = ",\n    ".join(rows)
    return [
        f"  // {comment}, most significant digit first.",
        f"  static constexpr int8_t {name}[{len(digits)}] = {{",
        f"    {body}}};",
    ]


def curve_lines(curve: Curve) -> list[str]:
    q, xi = curve.q, curve.xi
    assert q % 6 == 1 and pow(-1, (q - 1) // 2, q) == q - 1
    gamma1 = [fq2_pow(xi, i * (q - 1) // 6, q) for i in range(1, 6)]
    gamma2 = [fq2_mul(g, (g[0], -g[1] % q), q) for g in gamma1]
    # xi is neither a square nor a cube: w^6 - xi is irreducible.
    assert fq2_pow(xi, (q * q - 1) // 2, q) != (1, 0) != fq2_pow(xi, (q * q - 1) // 3, q)
    assert all(g[1] == 0 for g in gamma2)
    assert (q**12 - 1) % curve.r == 0 and (q**6 - 1) % curve.r != 0 and (q**4 - 1) % curve.r != 0
    lines = [
        f"struct {curve.name}PairingConstants {{",
        "  // xi^(i (q - 1) / 6), i = 1 to 5: w^(i q) = gamma1[i - 1] * w^i.",
        f"  static constexpr uint64_t gamma1[5][2][{curve.limbs}] = {{",
        ",\n".join("  " + fq2_limbs(g, curve) for g in gamma1) + "};",
        "  // xi^(i (q^2 - 1) / 6), i = 1 to 5, all in Fq.",
        f"  static constexpr uint64_t gamma2[5][{curve.limbs}] = {{",
        ",\n".join("   " + limbs(g[0], curve) for g in gamma2) + "};",
        "  // 3 b of the twist.",
        f"  static constexpr uint64_t twist_3b[2][{curve.limbs}] = {{",
        "   " + limbs(3 * curve.twist_b[0], curve) + ",\n   " + limbs(3 * curve.twist_b[1], curve) + "};",
    ]
    if curve.name == "Bn254":
        lines += digit_array("loop", "6 x + 2, the Miller loop", signed_digits(6 * curve.x + 2, 2))
        lines += digit_array("x", "x", signed_digits(curve.x, 3))
    else:
        lines += digit_array("loop", "|x|, x < 0: the Miller loop and an exponent", signed_digits(-curve.x, 2))
        lines += digit_array("third", "(|x| + 1) / 3", signed_digits((1 - curve.x) // 3, 3))
    return [*lines, "};", ""]


def header() -> str:
    lines = [
        "// Printed by tools/pairing_constants.py, which derives and checks them; do not edit.",
        "// Field elements are in Montgomery form, least significant limb first.",
        "#pragma once",
        "#include <cstdint>",
        "",
        "namespace cuzk {",
        "",
        *curve_lines(bn254()),
        *curve_lines(bls12_381()),
        "}  // namespace cuzk",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        if HEADER.read_text() == header():
            return 0
        print(f"{HEADER}: differs from what tools/pairing_constants.py prints; print it again", file=sys.stderr)
        return 1
    if sys.argv[1:]:
        print("usage: pairing_constants.py [--check]", file=sys.stderr)
        return 2
    print(header(), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
