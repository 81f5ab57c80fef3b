// Multiplication of short latency, for kernels that run in few warps: digits of 26 bits and columns of 64, so that no
// carry makes an instruction wait for the one before it. More multiply-adds than limbs_cuda.hpp (450 for 288 on twelve
// limbs) and about half of its cycles in a warp on its own; the same values.
#pragma once
#include "limbs_cuda.hpp"

namespace cuzk {
namespace CUZK_PATH {

template <class P>
struct ColumnsCuda {
  using Limbs = LimbsCuda<P>;
  static constexpr int N = Limbs::N, radix = 26, digits = (32 * N + radix - 1) / radix;
  static constexpr int last = 32 * N - radix * (digits - 1);  // bits of the last reduction step: 32 N in all
  static constexpr uint32_t mask = ((uint32_t)1 << radix) - 1;

  // a * b / 2^(32 N) mod p.
  static CUZK_INLINE void mul(uint32_t *r, const uint32_t *a, const uint32_t *b) {
    uint32_t x[digits], y[digits];
    uint64_t columns[digits];
    unpack(x, a);
    unpack(y, b);
    clear(columns);
CUZK_UNROLL
    for (int i = 0; i < digits; i++) {
      add_row(columns, x, y[i]);
      reduce(columns, i);
    }
    finish(r, columns);
  }

  // (a * b + c * d) / 2^(32 N) mod p, as LimbsCuda::dot.
  static CUZK_INLINE void dot(uint32_t *r, const uint32_t *a, const uint32_t *b, const uint32_t *c, const uint32_t *d) {
    uint32_t x[digits], y[digits], z[digits], w[digits];
    uint64_t columns[digits];
    unpack(x, a);
    unpack(y, b);
    unpack(z, c);
    unpack(w, d);
    clear(columns);
CUZK_UNROLL
    for (int i = 0; i < digits; i++) {
      add_row(columns, x, y[i]);
      add_row(columns, z, w[i]);
      reduce(columns, i);
    }
    finish(r, columns);
  }

 private:
  static_assert(3 * digits < 1 << (63 - 2 * radix), "a column holds the products of three rows at each step");

  static constexpr uint32_t p(int i) {  // digit of the modulus
    const int limb = radix * i / 32, shift = radix * i % 32;
    const uint64_t both = (uint64_t)(limb + 1 < N ? Limbs::p(limb + 1) : 0) << 32 | Limbs::p(limb);
    return (uint32_t)(both >> shift) & mask;
  }

  static CUZK_INLINE void clear(uint64_t *columns) {
CUZK_UNROLL
    for (int i = 0; i < digits; i++) columns[i] = 0;
  }

  static CUZK_INLINE void unpack(uint32_t *x, const uint32_t *a) {
CUZK_UNROLL
    for (int i = 0; i < digits; i++) {
      const int limb = radix * i / 32, shift = radix * i % 32;
      const uint64_t both = (uint64_t)(limb + 1 < N ? a[limb + 1] : 0) << 32 | a[limb];
      x[i] = (uint32_t)(both >> shift) & mask;
    }
  }

  static CUZK_INLINE void add_row(uint64_t *columns, const uint32_t *x, uint32_t y) {
CUZK_UNROLL
    for (int j = 0; j < digits; j++) columns[j] += (uint64_t)x[j] * y;
  }

  // Adds the multiple of p that clears the lowest digit, or its `last` bits in the last step; drops that digit, except in
  // the last step.
  static CUZK_INLINE void reduce(uint64_t *columns, int step) {
    const bool ends = step == digits - 1;
    const uint32_t k = (uint32_t)columns[0] * Limbs::n0 & (ends ? ((uint32_t)1 << last) - 1 : mask);
CUZK_UNROLL
    for (int j = 0; j < digits; j++) columns[j] += (uint64_t)p(j) * k;
    if (ends) return;
    columns[0] = (columns[0] >> radix) + columns[1];
CUZK_UNROLL
    for (int j = 1; j < digits - 1; j++) columns[j] = columns[j + 1];
    columns[digits - 1] = 0;
  }

  // The columns' sum / 2^last, reduced. Its lowest `last` bits are zero, and it is below 2 p 2^last.
  static CUZK_INLINE void finish(uint32_t *r, const uint64_t *columns) {
    // Each column as three digits; sums of digits below 2^28, as a digit and a carry; both added as limbs.
    constexpr int places = digits + 3;
    uint32_t low[places], high[places];
    high[0] = 0;
CUZK_UNROLL
    for (int i = 0; i < places; i++) {
      uint32_t sum = 0;
      if (i < digits) sum += (uint32_t)columns[i] & mask;
      if (i >= 1 && i - 1 < digits) sum += (uint32_t)(columns[i - 1] >> radix) & mask;
      if (i >= 2 && i - 2 < digits) sum += (uint32_t)(columns[i - 2] >> (2 * radix));
      low[i] = sum & mask;
      if (i + 1 < places) high[i + 1] = sum >> radix;
    }
    uint32_t t[N], u[N];
CUZK_UNROLL
    for (int i = 0; i < N; i++) {
      t[i] = limb_of(low, i);
      u[i] = limb_of(high, i);
    }
    t[0] = carry::add_cc(t[0], u[0]);
CUZK_UNROLL
    for (int i = 1; i < N - 1; i++) t[i] = carry::addc_cc(t[i], u[i]);
    t[N - 1] = carry::addc(t[N - 1], u[N - 1]);
    Limbs::reduce_once(r, t);
  }

  // Bits last + 32 i to last + 32 i + 31 of digits + 3 digits.
  static CUZK_INLINE uint32_t limb_of(const uint32_t *x, int i) {
    const int first = (last + 32 * i) / radix, shift = (last + 32 * i) % radix;
    uint32_t r = x[first] >> shift;
    if (first + 1 < digits + 3) r |= x[first + 1] << (radix - shift);
    if (first + 2 < digits + 3 && 2 * radix - shift < 32) r |= x[first + 2] << (2 * radix - shift);
    return r;
  }
};

}  // namespace CUZK_PATH
}  // namespace cuzk
