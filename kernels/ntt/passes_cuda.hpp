// The passes of a number-theoretic transform on the device; index arithmetic and butterflies, without the launches.
//
// Forward, natural order in, bit-reversed order out: x^n - 1 is split as (x^(n/2) - 1)(x^(n/2) + 1) and so on; at
// stage s the residues modulo x^m - u, m = n / 2^s, become those modulo x^(m/2) -+ sqrt(u). Number the 2^s factors
// from 0: all butterflies of factor k share the twiddle
//     T[k] = w^(k's bits reversed),  T[0] = 1, T[1] = sqrt(-1), T[2^j + k] = T[k] * (root of unity of order 2^(j + 2)),
// which depends neither on s nor on n. So one table serves every size, early stages read a handful of twiddles, and
// the last ones read them in order. (Seiler, "Faster AVX2 optimized NTT multiplication for Ring-LWE lattice
// cryptography", section 2, has the same tree.)
//
// What else this tree gives:
//  - The odd coset (values at w_2n * w_n^i) is the second factor of x^(2n) - 1: twiddles T[2^s + k] instead of T[k];
// no scaling.
//  - 1 / T[k] = -T[k ^ (2^j - 1)] where 2^j is the highest bit of k > 0: the inverse needs no table.
//  - Running the stages backwards with (a + b, (a - b) T) is the transposed map: bit-reversed order in, natural order
// out.
//  - In reversed order, w_2n^i stands at position reverse(i) and equals T[reverse(i)]: the coset scale factors are
// the table itself.
#pragma once
#include "../ff/fp.hpp"

namespace cuzk {
namespace CUZK_PATH {

// One pass: stages first .. first + bits - 1 on a tile of 2^bits rows and 2^columns columns; 2^each elements a thread.
template <int each>
struct NttPass {
  uint32_t log_n, first, bits, columns;

  CUZK_INLINE uint32_t low() const { return log_n - first - bits; }  // index bits below the pass
  CUZK_INLINE bool contiguous() const { return low() == 0; }         // then columns are neighbouring factors
  CUZK_INLINE uint32_t log_tile() const { return bits + columns; }
  CUZK_INLINE uint32_t shift() const { return contiguous() ? 0 : columns; }  // position of row bit 0 in a tile's index

  // Where tile `tile`'s element u stands in the vector.
  CUZK_INLINE uint32_t index(uint32_t tile, uint32_t u) const {
    if (contiguous()) return (tile << log_tile()) + u;
    const uint32_t groups = low() - columns;  // log of the tiles that share a factor
    const uint32_t factor = tile >> groups, group = tile & ((1u << groups) - 1);
    return (factor << (log_n - first)) + ((u >> columns) << low()) + (group << columns) + (u & ((1u << columns) - 1));
  }

  // Register groups: `each` row bits at a time, from the top; the last group may repeat bits and then skips those
  // stages.
  CUZK_INLINE int groups() const { return ((int)bits + each - 1) / each; }
  CUZK_INLINE int row_position(int g) const {
    const int p = (int)bits - each * (g + 1);
    return p < 0 ? 0 : p;
  }
  CUZK_INLINE int skipped(int g) const {
    const int p = (int)bits - each * (g + 1);
    return p < 0 ? -p : 0;
  }
  // The tile's element that thread t holds as its j-th in group g.
  CUZK_INLINE uint32_t element(int g, uint32_t t, int j) const {
    const uint32_t position = shift() + (uint32_t)row_position(g);
    return (t >> position) << (position + each) | (uint32_t)j << position | (t & ((1u << position) - 1));
  }
  // Stage of the group's top bit.
  CUZK_INLINE uint32_t stage(int g) const { return first + bits - each - (uint32_t)row_position(g); }
};

// Shared memory is two planes of 16-byte halves. Eight threads go together; whichever three bits of u they differ in
// (four or eight elements a thread, at any position), their slots differ modulo 8: bits 3, 4, 5 of u are folded in as
// 2, 5 and 6.
static CUZK_INLINE uint32_t ntt_slot(uint32_t u) { return u ^ (0x13467520u >> (u >> 1 & 28) & 7); }

static CUZK_INLINE uint32_t conjugate_index(uint32_t k) {
#if defined(__CUDA_ARCH__)
  return k ? k ^ ((1u << (31 - __clz((int)k))) - 1) : 0;
#else
  return k ? k ^ ((1u << (31 - __builtin_clz(k))) - 1) : 0;
#endif
}

struct NttMode {
  bool inverse;  // roots of unity inverted (no scaling by 1/n)
  bool coset;
};

// (a, b) -> (a + t b, a - t b) for t = T[k] or its inverse.
template <class F>
CUZK_INLINE void split(F &a, F &b, uint32_t k, const F *table, NttMode mode) {
  const bool negative = mode.inverse && k != 0;
  const F t = F::load(table + (mode.inverse ? conjugate_index(k) : k));
  const F y = b * t;
  const F plus = a + y, minus = a - y;
  a = negative ? minus : plus;
  b = negative ? plus : minus;
}

// (a, b) -> (a + b, (a - b) t).
template <class F>
CUZK_INLINE void merge(F &a, F &b, uint32_t k, const F *table, NttMode mode) {
  const bool negative = mode.inverse && k != 0;
  const F t = F::load(table + (mode.inverse ? conjugate_index(k) : k));
  const F plus = a + b, d = negative ? b - a : a - b;
  a = plus;
  b = d * t;
}

// Both of the above for T[0] = 1.
template <class F>
CUZK_INLINE void add_and_subtract(F &a, F &b) {
  const F plus = a + b, minus = a - b;
  a = plus;
  b = minus;
}

// Up to `each` stages on 2^each elements; q is the factor of x[0] at the group's top stage (with the coset's offset).
// `zero` promises that q is 0, so that the multiplications by T[0] are left out: in the first stages of a transform,
// where factors are few, that is most of them, and two stages' worth of a whole transform.
template <int each, bool zero, class F>
CUZK_INLINE void split_group(F *x, uint32_t q, int skip, const F *table, NttMode mode) {
CUZK_UNROLL
  for (int k = 0; k < each; k++) {
    if (skip > k) continue;
    const int half = 1 << (each - 1 - k);
CUZK_UNROLL
    for (int j = 0; j < 1 << (each - 1); j++) {
      const int block = j / half, a = block * 2 * half + j % half;
      if (zero && block == 0)
        add_and_subtract(x[a], x[a + half]);
      else
        split(x[a], x[a + half], (zero ? 0 : q << k) + (uint32_t)block, table, mode);
    }
  }
}

template <int each, bool zero, class F>
CUZK_INLINE void merge_group(F *x, uint32_t q, int skip, const F *table, NttMode mode) {
CUZK_UNROLL
  for (int k = each - 1; k >= 0; k--) {
    if (skip > k) continue;
    const int half = 1 << (each - 1 - k);
CUZK_UNROLL
    for (int j = 0; j < 1 << (each - 1); j++) {
      const int block = j / half, a = block * 2 * half + j % half;
      if (zero && block == 0)
        add_and_subtract(x[a], x[a + half]);
      else
        merge(x[a], x[a + half], (zero ? 0 : q << k) + (uint32_t)block, table, mode);
    }
  }
}

static CUZK_INLINE uint32_t reverse_bits(uint32_t x, uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return bits ? __brev(x) >> (32 - bits) : 0;
#else
  uint32_t r = 0;
  for (uint32_t i = 0; i < bits; i++) r |= (x >> i & 1) << (bits - 1 - i);
  return r;
#endif
}

}  // namespace CUZK_PATH
}  // namespace cuzk
