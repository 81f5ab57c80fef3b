// Inversion modulo an odd prime by an optimized binary GCD, about three times as quick as Fermat.
//
// Pornin, "Optimized Binary GCD for Modular Inversion" (eprint 2020/972): the low 31 and the top 33 bits of both
// numbers tell what 30 steps do to them; these are gathered in a 2 x 2 matrix, which is then applied to the long
// numbers. Not constant time: the number of rounds depends on the value.
#pragma once
#include "limbs_portable.hpp"

namespace cuzk {
namespace CUZK_PATH {

template <class P>
class BinaryInversion {
 public:
  static constexpr int N = P::limbs;

  // r = y^-1 mod p, plain; 0 < y < p.
  static void invert(uint64_t *r, const uint64_t *y) {
    // a = u y and b = v y mod p at all times; gcd(a, b) = 1.
    uint64_t a[N], b[N], u[N] = {1}, v[N] = {};
    for (int i = 0; i < N; i++) {
      a[i] = y[i];
      b[i] = P::modulus[i];
    }
    while (!is_zero(a)) {
      Matrix m = steps(a, b);
      apply(a, b, m);
      apply_modular(u, v, m);
    }
    for (int i = 0; i < N; i++) r[i] = v[i];
  }

 private:
  static constexpr int rounds = 30;

  struct Matrix {
    int64_t f0, g0, f1, g1;  // a' = (f0 a + g0 b) / 2^rounds, b' = (f1 a + g1 b) / 2^rounds
  };

  static bool is_zero(const uint64_t *a) {
    uint64_t x = 0;
    for (int i = 0; i < N; i++) x |= a[i];
    return x == 0;
  }

  static Matrix steps(const uint64_t *a, const uint64_t *b) {
    int top = N - 1;
    while (top > 0 && (a[top] | b[top]) == 0) top--;
    uint64_t x = a[0], y = b[0];
    if (top > 0) {
      const int shift = __builtin_clzll(a[top] | b[top]);
      const uint64_t low = (uint64_t{1} << 31) - 1;
      x = (x & low) | (top_bits(a, top, shift) & ~low);
      y = (y & low) | (top_bits(b, top, shift) & ~low);
    }
    // Both coefficients of a row in one word, f + 2^32 g.
    uint64_t row0 = 1, row1 = uint64_t{1} << 32;
    for (int i = 0; i < rounds; i++) {
      const uint64_t odd = 0 - (x & 1);
      const uint64_t swap = odd & (0 - static_cast<uint64_t>(x < y));
      const uint64_t xy = (x ^ y) & swap, rows = (row0 ^ row1) & swap;
      x ^= xy;
      y ^= xy;
      row0 ^= rows;
      row1 ^= rows;
      x = (x - (y & odd)) >> 1;
      row0 -= row1 & odd;
      row1 <<= 1;
    }
    Matrix m;
    m.f0 = static_cast<int32_t>(row0);
    m.g0 = static_cast<int64_t>(row0 - static_cast<uint64_t>(m.f0)) >> 32;
    m.f1 = static_cast<int32_t>(row1);
    m.g1 = static_cast<int64_t>(row1 - static_cast<uint64_t>(m.f1)) >> 32;
    return m;
  }

  static uint64_t top_bits(const uint64_t *a, int top, int shift) {
    return shift ? a[top] << shift | a[top - 1] >> (64 - shift) : a[top];
  }

  // t = f x + g y, N + 1 limbs in two's complement.
  static void combine(uint64_t *t, const uint64_t *x, const uint64_t *y, int64_t f, int64_t g) {
    __int128 carry = 0;
    for (int i = 0; i < N; i++) {
      carry += (__int128)x[i] * f + (__int128)y[i] * g;
      t[i] = (uint64_t)carry;
      carry >>= 64;
    }
    t[N] = (uint64_t)carry;
  }

  static void shift_down(uint64_t *r, const uint64_t *t) {
    for (int i = 0; i < N; i++) r[i] = t[i] >> rounds | t[i + 1] << (64 - rounds);
  }

  static void negate(uint64_t *t) {
    uint64_t carry = 1;
    for (int i = 0; i <= N; i++) {
      t[i] = ~t[i] + carry;
      carry = carry && t[i] == 0;
    }
  }

  // The divisions are exact. What comes out negative, because the steps saw approximations, changes its sign, and so do
  // its coefficients.
  static void apply(uint64_t *a, uint64_t *b, Matrix &m) {
    uint64_t s[N + 1], t[N + 1];
    combine(s, a, b, m.f0, m.g0);
    combine(t, a, b, m.f1, m.g1);
    if (s[N] >> 63) {
      negate(s);
      m.f0 = -m.f0;
      m.g0 = -m.g0;
    }
    if (t[N] >> 63) {
      negate(t);
      m.f1 = -m.f1;
      m.g1 = -m.g1;
    }
    shift_down(a, s);
    shift_down(b, t);
  }

  static void apply_modular(uint64_t *u, uint64_t *v, const Matrix &m) {
    uint64_t s[N + 1], t[N + 1];
    combine(s, u, v, m.f0, m.g0);
    combine(t, u, v, m.f1, m.g1);
    divide(u, s);
    divide(v, t);
  }

  // r = t / 2^rounds mod p, for |t| < 2^rounds p: a multiple of p makes the division exact.
  static void divide(uint64_t *r, uint64_t *t) {
    const uint64_t k = (t[0] * Montgomery<P>::n0) & ((uint64_t{1} << rounds) - 1);
    uint128_t carry = 0;
    for (int i = 0; i < N; i++) {
      carry += (uint128_t)P::modulus[i] * k + t[i];
      t[i] = (uint64_t)carry;
      carry >>= 64;
    }
    t[N] += (uint64_t)carry;
    uint64_t x[N];
    shift_down(x, t);
    if (t[N] >> 63) {  // in (-p, 0)
      uint64_t c = 0;
      for (int i = 0; i < N; i++) {
        const uint128_t sum = (uint128_t)x[i] + P::modulus[i] + c;
        r[i] = (uint64_t)sum;
        c = (uint64_t)(sum >> 64);
      }
    } else {  // in [0, 2p)
      LimbsPortable<P>::reduce_once(r, x);
    }
  }
};

}  // namespace CUZK_PATH
}  // namespace cuzk
