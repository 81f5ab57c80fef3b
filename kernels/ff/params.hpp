// Moduli of the four prime fields, and what Montgomery arithmetic derives from them, at compile time.
#pragma once
#include "config.hpp"

namespace cuzk {
namespace CUZK_PATH {

// q of BN254 (EIP-196; Barreto and Naehrig, "Pairing-Friendly Elliptic Curves of Prime Order").
struct Bn254FqParams {
  static constexpr int limbs = 4;
  static constexpr uint64_t modulus[4] = {0x3c208c16d87cfd47, 0x97816a916871ca8d, 0xb85045b68181585d,
                                          0x30644e72e131a029};
};

// r of BN254.
struct Bn254FrParams {
  static constexpr int limbs = 4;
  static constexpr uint64_t modulus[4] = {0x43e1f593f0000001, 0x2833e84879b97091, 0xb85045b68181585d,
                                          0x30644e72e131a029};
  static constexpr uint32_t two_adicity = 28;
  static constexpr uint64_t non_residue = 5;  // the smallest, counted from 2
};

// q of BLS12-381 (draft-irtf-cfrg-pairing-friendly-curves, section 4.2.1).
struct Bls12_381FqParams {
  static constexpr int limbs = 6;
  static constexpr uint64_t modulus[6] = {0xb9feffffffffaaab, 0x1eabfffeb153ffff, 0x6730d2a0f6b0f624,
                                          0x64774b84f38512bf, 0x4b1ba7b6434bacd7, 0x1a0111ea397fe69a};
};

// r of BLS12-381.
struct Bls12_381FrParams {
  static constexpr int limbs = 4;
  static constexpr uint64_t modulus[4] = {0xffffffff00000001, 0x53bda402fffe5bfe, 0x3339d80809a1d805,
                                          0x73eda753299d7d48};
  static constexpr uint32_t two_adicity = 32;
  static constexpr uint64_t non_residue = 5;
};

template <int N>
struct Limbs {
  uint64_t v[N];
};

// Constants of one field: everything follows from P::modulus. The top bit of every modulus is free, which the
// multiplications and additions rely on.
template <class P>
struct Montgomery {
  static constexpr int N = P::limbs;
  static_assert(P::modulus[N - 1] >> 63 == 0, "additions and the no-carry multiplication need a free top bit");

  // 2^bits mod p, by doubling.
  static constexpr Limbs<N> power_of_two(int bits) {
    Limbs<N> x{};
    x.v[0] = 1;
    for (int i = 0; i < bits; i++) {
      uint64_t carry = 0;
      for (int j = 0; j < N; j++) {
        const uint64_t next = x.v[j] >> 63;
        x.v[j] = (x.v[j] << 1) | carry;
        carry = next;
      }
      bool below = false;
      for (int j = N - 1; j >= 0; j--) {
        if (x.v[j] != P::modulus[j]) {
          below = x.v[j] < P::modulus[j];
          break;
        }
      }
      if (below) continue;
      uint64_t borrow = 0;
      for (int j = 0; j < N; j++) {
        const uint64_t m = P::modulus[j], a = x.v[j];
        x.v[j] = a - m - borrow;
        borrow = (a < m || (a == m && borrow)) ? 1 : 0;
      }
    }
    return x;
  }

  static constexpr uint64_t negative_inverse() {  // -p^-1 mod 2^64, Newton's iteration
    uint64_t x = 1;
    for (int i = 0; i < 6; i++) x *= 2 - P::modulus[0] * x;
    return ~x + 1;
  }

  static constexpr int top_bits() {
    int bits = 0;
    for (uint64_t t = P::modulus[N - 1]; t; t >>= 1) bits++;
    return bits;
  }

  static constexpr int bits = 64 * (N - 1) + top_bits();  // of the modulus
  static constexpr uint64_t n0 = negative_inverse();
  static constexpr Limbs<N> one = power_of_two(64 * N);       // R mod p
  static constexpr Limbs<N> r2 = power_of_two(2 * 64 * N);    // R^2 mod p
  static constexpr Limbs<N> r3 = power_of_two(3 * 64 * N);    // R^3 mod p
};

}  // namespace CUZK_PATH
}  // namespace cuzk
