// Inversion modulo an odd prime by an optimized binary GCD on 32-bit limbs, for the device.
//
// Pornin, "Optimized Binary GCD for Modular Inversion" (eprint 2020/972), as in inverse.hpp: the low 31 and the top 33
// bits of both numbers tell what 30 steps do to them. Limbs are picked by unrolled selections, since an index that is
// not a constant would put them into local memory. The number of rounds depends on the value: the threads of a warp
// wait for the longest.
#pragma once
#include "limbs_cuda.hpp"

namespace cuzk {
namespace CUZK_PATH {

template <class P>
class BinaryInversionCuda {
 public:
  using Limbs = LimbsCuda<P>;
  static constexpr int N = Limbs::N;

  // r = y^-1 mod p, plain; y < p. 0 gives 0.
  static CUZK_INLINE void invert(uint32_t *r, const uint32_t *y) {
    // a = u y and b = v y mod p at all times; gcd(a, b) = 1.
    uint32_t a[N], b[N], u[N], v[N];
    Limbs::modulus(b);
CUZK_UNROLL
    for (int i = 0; i < N; i++) {
      a[i] = y[i];
      u[i] = i == 0;
      v[i] = 0;
    }
    while (!is_zero(a)) {
      Matrix m = steps(a, b);
      apply(a, m.f0, m.g0, b, m.f1, m.g1);
      apply_modular(u, v, m);
    }
CUZK_UNROLL
    for (int i = 0; i < N; i++) r[i] = v[i];
  }

 private:
  static constexpr int rounds = 30;

  struct Matrix {
    int32_t f0, g0, f1, g1;  // a' = (f0 a + g0 b) / 2^rounds, b' = (f1 a + g1 b) / 2^rounds
  };

  static CUZK_INLINE bool is_zero(const uint32_t *a) {
    uint32_t x = 0;
CUZK_UNROLL
    for (int i = 0; i < N; i++) x |= a[i];
    return x == 0;
  }

  // The top 64 bits of both numbers, aligned at the longer one's highest bit; all of them, where they have no more.
  static CUZK_INLINE void approximate(const uint32_t *a, const uint32_t *b, uint64_t *x, uint64_t *y) {
    uint32_t a2 = 0, a1 = 0, a0 = 0, b2 = 0, b1 = 0, b0 = 0;  // the highest limb in use and the two below
    bool is_long = false;
CUZK_UNROLL
    for (int i = 2; i < N; i++) {
      const bool used = (a[i] | b[i]) != 0;
      is_long = is_long || used;
      a2 = used ? a[i] : a2, a1 = used ? a[i - 1] : a1, a0 = used ? a[i - 2] : a0;
      b2 = used ? b[i] : b2, b1 = used ? b[i - 1] : b1, b0 = used ? b[i - 2] : b0;
    }
    *x = (uint64_t)a[1] << 32 | a[0];
    *y = (uint64_t)b[1] << 32 | b[0];
    if (is_long) {
      const int shift = leading_zeros(a2 | b2);
      const uint64_t low = ((uint64_t)1 << 31) - 1;
      *x = (*x & low) | (top_bits(a2, a1, a0, shift) & ~low);
      *y = (*y & low) | (top_bits(b2, b1, b0, shift) & ~low);
    }
  }

  static CUZK_INLINE int leading_zeros(uint32_t x) {
#if defined(__CUDA_ARCH__)
    return __clz((int)x);
#else
    return __builtin_clz(x);
#endif
  }

  static CUZK_INLINE uint64_t top_bits(uint32_t h, uint32_t m, uint32_t l, int shift) {
    const uint64_t high = (uint64_t)h << 32 | m;
    return shift ? high << shift | l >> (32 - shift) : high;
  }

  static CUZK_INLINE Matrix steps(const uint32_t *a, const uint32_t *b) {
    uint64_t x, y;
    approximate(a, b, &x, &y);
    Matrix m{1, 0, 0, 1};
    for (int i = 0; i < rounds; i++) {
      const bool odd = x & 1, swap = odd && x < y;
      const uint64_t larger = swap ? y : x, smaller = swap ? x : y;
      const int32_t f = swap ? m.f1 : m.f0, g = swap ? m.g1 : m.g0;
      m.f1 = swap ? m.f0 : m.f1;
      m.g1 = swap ? m.g0 : m.g1;
      m.f0 = f - (odd ? m.f1 : 0);
      m.g0 = g - (odd ? m.g1 : 0);
      m.f1 *= 2;
      m.g1 *= 2;
      x = (larger - (odd ? smaller : 0)) >> 1;
      y = smaller;
    }
    return m;
  }

  // t = f x + g y, N + 1 limbs in two's complement; |f| + |g| <= 2^rounds.
  static CUZK_INLINE void combine(uint32_t *t, const uint32_t *x, const uint32_t *y, int32_t f, int32_t g) {
    int64_t carry = 0;
CUZK_UNROLL
    for (int i = 0; i < N; i++) {
      carry += (int64_t)x[i] * f + (int64_t)y[i] * g;
      t[i] = (uint32_t)carry;
      carry >>= 32;
    }
    t[N] = (uint32_t)carry;
  }

  static CUZK_INLINE void shift_down(uint32_t *r, const uint32_t *t) {
CUZK_UNROLL
    for (int i = 0; i < N; i++) r[i] = t[i] >> rounds | t[i + 1] << (32 - rounds);
  }

  // The divisions are exact. What comes out negative, because the steps saw approximations, changes its sign, and so do
  // its coefficients.
  static CUZK_INLINE void apply(uint32_t *a, int32_t &f0, int32_t &g0, uint32_t *b, int32_t &f1, int32_t &g1) {
    uint32_t s[N + 1], t[N + 1];
    combine(s, a, b, f0, g0);
    combine(t, a, b, f1, g1);
    make_positive(s, f0, g0);
    make_positive(t, f1, g1);
    shift_down(a, s);
    shift_down(b, t);
  }

  static CUZK_INLINE void make_positive(uint32_t *t, int32_t &f, int32_t &g) {
    const bool negative = t[N] >> 31;
    const uint32_t mask = negative ? 0xffffffffu : 0;
    t[0] = carry::add_cc(t[0] ^ mask, mask & 1);
CUZK_UNROLL
    for (int i = 1; i < N; i++) t[i] = carry::addc_cc(t[i] ^ mask, 0);
    t[N] = carry::addc(t[N] ^ mask, 0);
    f = negative ? -f : f;
    g = negative ? -g : g;
  }

  static CUZK_INLINE void apply_modular(uint32_t *u, uint32_t *v, const Matrix &m) {
    uint32_t s[N + 1], t[N + 1];
    combine(s, u, v, m.f0, m.g0);
    combine(t, u, v, m.f1, m.g1);
    divide(u, s);
    divide(v, t);
  }

  // r = t / 2^rounds mod p, for |t| <= 2^rounds p: a multiple of p makes the division exact.
  static CUZK_INLINE void divide(uint32_t *r, uint32_t *t) {
    const uint32_t k = (t[0] * Limbs::n0) & (((uint32_t)1 << rounds) - 1);
    uint64_t carry = 0;
CUZK_UNROLL
    for (int i = 0; i < N; i++) {
      carry += (uint64_t)Limbs::p(i) * k + t[i];
      t[i] = (uint32_t)carry;
      carry >>= 32;
    }
    t[N] += (uint32_t)carry;
    const uint32_t mask = t[N] >> 31 ? 0xffffffffu : 0;  // in (-p, 0), else in [0, 2p)
    uint32_t x[N];
    shift_down(x, t);
    x[0] = carry::add_cc(x[0], Limbs::p(0) & mask);
CUZK_UNROLL
    for (int i = 1; i < N - 1; i++) x[i] = carry::addc_cc(x[i], Limbs::p(i) & mask);
    x[N - 1] = carry::addc(x[N - 1], Limbs::p(N - 1) & mask);
    Limbs::reduce_once(r, x);
  }
};

}  // namespace CUZK_PATH
}  // namespace cuzk
