// Limb arithmetic on any machine with a 64 x 64 -> 128 bit product in C++.
//
// Every function takes and gives values in [0, p); the result may be one of the inputs.
#pragma once
#include "params.hpp"

namespace cuzk {
namespace CUZK_PATH {

using uint128_t = unsigned __int128;

template <class P>
struct LimbsPortable {
  static constexpr int N = P::limbs;

  // t - p when t >= p; t < 2p.
  static CUZK_INLINE void reduce_once(uint64_t *r, const uint64_t *t) {
    uint64_t s[N], borrow = 0;
    for (int i = 0; i < N; i++) {
      const uint128_t d = (uint128_t)t[i] - P::modulus[i] - borrow;
      s[i] = (uint64_t)d;
      borrow = (uint64_t)(d >> 64) & 1;
    }
    const uint64_t keep = 0 - borrow;
    for (int i = 0; i < N; i++) r[i] = (t[i] & keep) | (s[i] & ~keep);
  }

  static CUZK_INLINE void add(uint64_t *r, const uint64_t *a, const uint64_t *b) {
    uint64_t t[N], carry = 0;
    for (int i = 0; i < N; i++) {
      const uint128_t s = (uint128_t)a[i] + b[i] + carry;
      t[i] = (uint64_t)s;
      carry = (uint64_t)(s >> 64);
    }
    reduce_once(r, t);
  }

  static CUZK_INLINE void sub(uint64_t *r, const uint64_t *a, const uint64_t *b) {
    uint64_t t[N], borrow = 0;
    for (int i = 0; i < N; i++) {
      const uint128_t d = (uint128_t)a[i] - b[i] - borrow;
      t[i] = (uint64_t)d;
      borrow = (uint64_t)(d >> 64) & 1;
    }
    const uint64_t mask = 0 - borrow;
    uint64_t carry = 0;
    for (int i = 0; i < N; i++) {
      const uint128_t s = (uint128_t)t[i] + (P::modulus[i] & mask) + carry;
      r[i] = (uint64_t)s;
      carry = (uint64_t)(s >> 64);
    }
  }

  // a * b / 2^(64 N) mod p: operand scanning with the two passes of a row interleaved; no carry limb is needed because
  // the top bit of p is free (Koc, Acar and Kaliski, "Analyzing and Comparing Montgomery Multiplication Algorithms").
  static CUZK_INLINE void mul(uint64_t *r, const uint64_t *a, const uint64_t *b) {
    uint64_t t[N] = {};
#pragma GCC unroll 6
    for (int i = 0; i < N; i++) {
      uint128_t x = (uint128_t)a[0] * b[i] + t[0];
      const uint64_t m = (uint64_t)x * Montgomery<P>::n0;
      uint128_t y = (uint128_t)m * P::modulus[0] + (uint64_t)x;
#pragma GCC unroll 6
      for (int j = 1; j < N; j++) {
        x = (uint128_t)a[j] * b[i] + t[j] + (uint64_t)(x >> 64);
        y = (uint128_t)m * P::modulus[j] + (uint64_t)x + (uint64_t)(y >> 64);
        t[j - 1] = (uint64_t)y;
      }
      t[N - 1] = (uint64_t)(x >> 64) + (uint64_t)(y >> 64);
    }
    reduce_once(r, t);
  }
};

}  // namespace CUZK_PATH
}  // namespace cuzk
