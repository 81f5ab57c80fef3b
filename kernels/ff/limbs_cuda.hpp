// Limb arithmetic for GPUs: 32-bit multiply-adds in carry chains.
//
// A product a_j * b covers limbs j and j + 1. Products of even j make one chain without gaps, those of odd j another,
// so a row of a multiplication is two chains of fused 32 x 32 + 64 bit multiply-adds. The running value is kept as
// two arrays, `even` (weights 0, 1, ..., N - 1) and `odd` (weights 1, 2, ..., N); dropping the limb that a reduction
// step has made zero turns odd into even, and the old even, moved by two limbs, into odd (Emmart, Zheng and Weems,
// "Faster Modular Exponentiation using Double Precision Floating Point Arithmetic on the GPU", section on integer
// chains).
//
// Every function takes and gives values in [0, p); results may be inputs.
#pragma once
#include "carry_cuda.hpp"
#include "params.hpp"

namespace cuzk {
namespace CUZK_PATH {

template <class P>
struct LimbsCuda {
  static constexpr int N = 2 * P::limbs;
  static constexpr uint32_t n0 = (uint32_t)Montgomery<P>::n0;
  static constexpr uint32_t p(int i) { return (uint32_t)(P::modulus[i / 2] >> (32 * (i % 2))); }

  // acc[0..N) += a[first], a[first + 2], ... times b; the carry goes into top.
  static CUZK_INLINE void mad_row(uint32_t *acc, const uint32_t *a, int first, uint32_t b, uint32_t *top) {
    acc[0] = carry::mad_lo_cc(a[first], b, acc[0]);
    acc[1] = carry::madc_hi_cc(a[first], b, acc[1]);
CUZK_UNROLL
    for (int j = 2; j < N; j += 2) {
      acc[j] = carry::madc_lo_cc(a[first + j], b, acc[j]);
      acc[j + 1] = carry::madc_hi_cc(a[first + j], b, acc[j + 1]);
    }
    if (top) *top = carry::addc(*top, 0);
  }

  static CUZK_INLINE void mul_row(uint32_t *acc, const uint32_t *a, int first, uint32_t b) {
CUZK_UNROLL
    for (int j = 0; j < N; j += 2) {
      const uint64_t x = (uint64_t)a[first + j] * b;
      acc[j] = (uint32_t)x;
      acc[j + 1] = (uint32_t)(x >> 32);
    }
  }

  // even += odd >> 32 in weight 0, and odd = (old odd >> 64) + a[1], a[3], ... times b; `odd` holds what was even,
  // odd[0] = 0.
  static CUZK_INLINE void shift_mad_row(uint32_t *even, uint32_t *odd, const uint32_t *a, uint32_t b) {
    even[0] = carry::add_cc(even[0], odd[1]);
CUZK_UNROLL
    for (int j = 0; j < N; j += 2) {
      odd[j] = carry::madc_lo_cc(a[j + 1], b, j + 2 < N ? odd[j + 2] : 0);
      odd[j + 1] = carry::madc_hi_cc(a[j + 1], b, j + 3 < N ? odd[j + 3] : 0);
    }
  }

  static CUZK_INLINE void modulus(uint32_t *m) {
CUZK_UNROLL
    for (int i = 0; i < N; i++) m[i] = p(i);
  }

  // What to multiply p by so that its lowest limb cancels x.
  static CUZK_INLINE uint32_t multiple(uint32_t x) {
    if constexpr (n0 == 0xffffffffu) return carry::negative(x);
    return x * n0;
  }

  // Adds the multiple of p that makes even[0] zero.
  static CUZK_INLINE void reduce_step(uint32_t *even, uint32_t *odd) {
    uint32_t m[N];
    modulus(m);
    const uint32_t k = multiple(even[0]);
    mad_row(odd, m, 1, k, nullptr);
    mad_row(even, m, 0, k, odd + N - 1);
  }

  // t - p when t >= p; t < 2p.
  static CUZK_INLINE void reduce_once(uint32_t *r, const uint32_t *t) {
    uint32_t s[N];
    s[0] = carry::sub_cc(t[0], p(0));
CUZK_UNROLL
    for (int i = 1; i < N; i++) s[i] = carry::subc_cc(t[i], p(i));
    const uint32_t borrow = carry::subc(0, 0);
CUZK_UNROLL
    for (int i = 0; i < N; i++) r[i] = borrow ? t[i] : s[i];
  }

  // even / 2^32 + odd, reduced.
  static CUZK_INLINE void finish(uint32_t *r, const uint32_t *even, const uint32_t *odd) {
    uint32_t t[N];
    t[0] = carry::add_cc(odd[0], even[1]);
CUZK_UNROLL
    for (int i = 1; i < N - 1; i++) t[i] = carry::addc_cc(odd[i], even[i + 1]);
    t[N - 1] = carry::addc(odd[N - 1], 0);
    reduce_once(r, t);
  }

  static CUZK_INLINE void add(uint32_t *r, const uint32_t *a, const uint32_t *b) {
    uint32_t t[N];
    t[0] = carry::add_cc(a[0], b[0]);
CUZK_UNROLL
    for (int i = 1; i < N - 1; i++) t[i] = carry::addc_cc(a[i], b[i]);
    t[N - 1] = carry::addc(a[N - 1], b[N - 1]);
    reduce_once(r, t);
  }

  static CUZK_INLINE void sub(uint32_t *r, const uint32_t *a, const uint32_t *b) {
    uint32_t t[N];
    t[0] = carry::sub_cc(a[0], b[0]);
CUZK_UNROLL
    for (int i = 1; i < N; i++) t[i] = carry::subc_cc(a[i], b[i]);
    const uint32_t mask = carry::subc(0, 0);
    r[0] = carry::add_cc(t[0], p(0) & mask);
CUZK_UNROLL
    for (int i = 1; i < N - 1; i++) r[i] = carry::addc_cc(t[i], p(i) & mask);
    r[N - 1] = carry::addc(t[N - 1], p(N - 1) & mask);
  }

  // a * b / 2^(32 N) mod p. Intermediate values stay below 2^(32 (N + 1)) because the top bit of p is free.
  static CUZK_INLINE void mul(uint32_t *r, const uint32_t *a, const uint32_t *b) {
    uint32_t x[N], y[N];
    mul_row(x, a, 0, b[0]);
    mul_row(y, a, 1, b[0]);
    reduce_step(x, y);
CUZK_UNROLL
    for (int i = 1; i < N; i++) {
      uint32_t *even = i % 2 ? y : x, *odd = i % 2 ? x : y;
      shift_mad_row(even, odd, a, b[i]);
      mad_row(even, a, 0, b[i], odd + N - 1);
      reduce_step(even, odd);
    }
    finish(r, y, x);  // N is even: the last step's even array is y
  }

  // (a * b + c * d) / 2^(32 N) mod p with one reduction.
  static CUZK_INLINE void dot(uint32_t *r, const uint32_t *a, const uint32_t *b, const uint32_t *c, const uint32_t *d) {
    static_assert(P::modulus[P::limbs - 1] >> 62 == 0, "two products need 4 p below 2^(32 N)");
    uint32_t x[N], y[N];
    mul_row(x, a, 0, b[0]);
    mul_row(y, a, 1, b[0]);
    mad_row(y, c, 1, d[0], nullptr);
    mad_row(x, c, 0, d[0], y + N - 1);
    reduce_step(x, y);
CUZK_UNROLL
    for (int i = 1; i < N; i++) {
      uint32_t *even = i % 2 ? y : x, *odd = i % 2 ? x : y;
      shift_mad_row(even, odd, a, b[i]);
      mad_row(even, a, 0, b[i], odd + N - 1);
      mad_row(odd, c, 1, d[i], nullptr);
      mad_row(even, c, 0, d[i], odd + N - 1);
      reduce_step(even, odd);
    }
    finish(r, y, x);
  }

  // a^2 / 2^(32 N) mod p: products of different limbs once, doubled; then the reduction apart.
  static CUZK_INLINE void sqr(uint32_t *r, const uint32_t *a) {
    uint32_t s[2 * N], odd[2 * N];  // odd[i] has weight i too; its products start at odd weights
CUZK_UNROLL
    for (int i = 0; i < 2 * N; i++) s[i] = odd[i] = 0;
CUZK_UNROLL
    for (int i = 0; i < N - 1; i++) {
CUZK_UNROLL
      for (int j = i + 1; j < N; j += 2) {
        odd[i + j] = j == i + 1 ? carry::mad_lo_cc(a[i], a[j], odd[i + j]) : carry::madc_lo_cc(a[i], a[j], odd[i + j]);
        odd[i + j + 1] = carry::madc_hi_cc(a[i], a[j], odd[i + j + 1]);
        if (j + 2 >= N && i + j + 2 < 2 * N) odd[i + j + 2] = carry::addc(odd[i + j + 2], 0);
      }
CUZK_UNROLL
      for (int j = i + 2; j < N; j += 2) {
        s[i + j] = j == i + 2 ? carry::mad_lo_cc(a[i], a[j], s[i + j]) : carry::madc_lo_cc(a[i], a[j], s[i + j]);
        s[i + j + 1] = carry::madc_hi_cc(a[i], a[j], s[i + j + 1]);
        if (j + 2 >= N && i + j + 2 < 2 * N) s[i + j + 2] = carry::addc(s[i + j + 2], 0);
      }
    }
    s[1] = odd[1];
    s[2] = carry::add_cc(s[2], odd[2]);
CUZK_UNROLL
    for (int i = 3; i < 2 * N - 1; i++) s[i] = carry::addc_cc(s[i], odd[i]);
    s[2 * N - 1] = carry::addc(odd[2 * N - 1], 0);
    s[1] = carry::add_cc(s[1], s[1]);
CUZK_UNROLL
    for (int i = 2; i < 2 * N - 1; i++) s[i] = carry::addc_cc(s[i], s[i]);
    s[2 * N - 1] = carry::addc(s[2 * N - 1], s[2 * N - 1]);
    s[0] = carry::mad_lo_cc(a[0], a[0], 0);
    s[1] = carry::madc_hi_cc(a[0], a[0], s[1]);
CUZK_UNROLL
    for (int i = 1; i < N; i++) {
      s[2 * i] = carry::madc_lo_cc(a[i], a[i], s[2 * i]);
      s[2 * i + 1] = carry::madc_hi_cc(a[i], a[i], s[2 * i + 1]);
    }
    redc(r, s);
  }

  // s / 2^(32 N) mod p for s < p^2 of 2 N limbs.
  static CUZK_INLINE void redc(uint32_t *r, const uint32_t *s) {
    uint32_t x[N], y[N], m[N];
    modulus(m);
CUZK_UNROLL
    for (int i = 0; i < N; i++) {
      x[i] = s[i];
      y[i] = 0;
    }
    reduce_step(x, y);
CUZK_UNROLL
    for (int i = 1; i < N; i++) {
      uint32_t *even = i % 2 ? y : x, *odd = i % 2 ? x : y;
      even[0] = carry::add_cc(even[0], odd[1]);
      const uint32_t k = multiple(even[0]);
CUZK_UNROLL
      for (int j = 0; j < N; j += 2) {
        odd[j] = carry::madc_lo_cc(m[j + 1], k, j + 2 < N ? odd[j + 2] : 0);
        odd[j + 1] = carry::madc_hi_cc(m[j + 1], k, j + 3 < N ? odd[j + 3] : 0);
      }
      mad_row(even, m, 0, k, odd + N - 1);
    }
    uint32_t t[N];
    t[0] = carry::add_cc(x[0], y[1]);
CUZK_UNROLL
    for (int i = 1; i < N - 1; i++) t[i] = carry::addc_cc(x[i], y[i + 1]);
    t[N - 1] = carry::addc(x[N - 1], 0);
    t[0] = carry::add_cc(t[0], s[N]);
CUZK_UNROLL
    for (int i = 1; i < N - 1; i++) t[i] = carry::addc_cc(t[i], s[N + i]);
    t[N - 1] = carry::addc(t[N - 1], s[2 * N - 1]);
    reduce_once(r, t);
  }
};

}  // namespace CUZK_PATH
}  // namespace cuzk
