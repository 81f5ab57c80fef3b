// Eight field elements side by side: AVX-512 IFMA, limbs of 52 bits, one vector a limb.
//
// With R = 2^(52 M) a little above 2^(64 N), the Montgomery radix of everything in memory, values are kept below small
// multiples of p rather than below p. Each function says which multiples it takes and gives; with p < R / 34 (the
// tightest of the fields, Fr of BLS12-381; for the others R / 84 or more), a product of values below k p and m p comes
// out below (1 + k m / 34) p.
#pragma once
#include <immintrin.h>

#include "fp2.hpp"

namespace cuzk {
namespace CUZK_PATH {

// rows[i] element j <-> rows[j] element i.
CUZK_INLINE void transpose_8x8(__m512i *r) {
  __m512i a[8], b[8];
  for (int i = 0; i < 4; i++) {
    a[i] = _mm512_unpacklo_epi64(r[2 * i], r[2 * i + 1]);      // even columns of rows 2i, 2i+1
    a[i + 4] = _mm512_unpackhi_epi64(r[2 * i], r[2 * i + 1]);  // odd ones
  }
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm512_shuffle_i64x2(a[i], a[i + 1], 0x88);
    b[i + 1] = _mm512_shuffle_i64x2(a[i], a[i + 1], 0xdd);
  }
  for (int odd = 0; odd < 2; odd++) {
    const __m512i *c = b + 4 * odd;
    r[odd] = _mm512_shuffle_i64x2(c[0], c[2], 0x88);
    r[odd + 4] = _mm512_shuffle_i64x2(c[0], c[2], 0xdd);
    r[odd + 2] = _mm512_shuffle_i64x2(c[1], c[3], 0x88);
    r[odd + 6] = _mm512_shuffle_i64x2(c[1], c[3], 0xdd);
  }
}

// words[k] = word k of each of the eight elements of `count` words at p[0..8). words: room for whole eights.
template <int count>
CUZK_INLINE void load_words(const void *const *p, __m512i *words) {
#pragma GCC unroll 4
  for (int first = 0; first < count; first += 8) {
    const __mmask8 mask = count - first >= 8 ? 0xff : (1 << (count - first)) - 1;
    for (int i = 0; i < 8; i++)
      words[first + i] = _mm512_maskz_loadu_epi64(mask, static_cast<const uint64_t *>(p[i]) + first);
    transpose_8x8(words + first);
  }
}

// The reverse, for lanes in `lanes`; words is spent.
template <int count>
CUZK_INLINE void store_words(void *const *p, __m512i *words, __mmask8 lanes) {
#pragma GCC unroll 4
  for (int first = 0; first < count; first += 8) {
    const __mmask8 mask = count - first >= 8 ? 0xff : (1 << (count - first)) - 1;
    transpose_8x8(words + first);
    for (int i = 0; i < 8; i++)
      if (lanes >> i & 1) _mm512_mask_storeu_epi64(static_cast<uint64_t *>(p[i]) + first, mask, words[first + i]);
  }
}

template <class Params>
struct FpX8 {
  using P = Params;
  using Scalar = Fp<P>;
  static constexpr int N = P::limbs;
  static constexpr int words = N;
  static constexpr int M = (Montgomery<P>::bits + 4 + 51) / 52;
  static constexpr int radix_bits = 52 * M;
  static constexpr uint64_t limb_mask = (uint64_t{1} << 52) - 1;

  __m512i l[M];

  // Limb j of k p, k a power of two.
  static constexpr uint64_t modulus_limb(int j, int log_k) {
    uint64_t x = 0;
    for (int bit = 0; bit < 52; bit++) {
      const int from = 52 * j + bit - log_k;
      if (from >= 0 && from < 64 * N) x |= (P::modulus[from / 64] >> (from % 64) & 1) << bit;
    }
    return x;
  }
  template <int log_k>
  static CUZK_INLINE __m512i modulus(int j) {
    struct Table {
      uint64_t v[M];
      constexpr Table() : v() {
        for (int i = 0; i < M; i++) v[i] = modulus_limb(i, log_k);
      }
    };
    static constexpr Table table;
    return _mm512_set1_epi64(static_cast<long long>(table.v[j]));
  }

  static CUZK_INLINE FpX8 from_words(const __m512i *w) {
    FpX8 r;
    const __m512i mask = _mm512_set1_epi64(limb_mask);
#pragma GCC unroll 8
    for (int j = 0; j < M; j++) {
      const int at = 52 * j / 64, shift = 52 * j % 64;
      __m512i x = _mm512_setzero_si512();
      if (at < N) x = _mm512_srli_epi64(w[at], shift);
      if (shift > 12 && at + 1 < N) x = _mm512_or_si512(x, _mm512_slli_epi64(w[at + 1], 64 - shift));
      r.l[j] = _mm512_and_si512(x, mask);
    }
    return r;
  }
  CUZK_INLINE void to_words(__m512i *w) const {
#pragma GCC unroll 8
    for (int k = 0; k < N; k++) {
      const int at = 64 * k / 52, shift = 64 * k % 52;
      __m512i x = _mm512_srli_epi64(l[at], shift);
      if (at + 1 < M) x = _mm512_or_si512(x, _mm512_slli_epi64(l[at + 1], 52 - shift));
      if (at + 2 < M && 104 - shift < 64) x = _mm512_or_si512(x, _mm512_slli_epi64(l[at + 2], 104 - shift));
      w[k] = x;
    }
  }
  static CUZK_INLINE FpX8 broadcast(const Scalar &s) {
    __m512i w[N];
    for (int i = 0; i < N; i++) w[i] = _mm512_set1_epi64(static_cast<long long>(s.v[i]));
    return from_words(w);
  }
  // Lane i of a value below 2^(64 N) as it is, not reduced.
  CUZK_INLINE void to_lanes(Scalar *out) const {
    __m512i w[N];
    alignas(64) uint64_t lanes[8];
    to_words(w);
    for (int k = 0; k < N; k++) {
      _mm512_store_si512(lanes, w[k]);
      for (int i = 0; i < 8; i++) out[i].v[k] = lanes[i];
    }
  }
  static CUZK_INLINE FpX8 from_lanes(const Scalar *in) {
    __m512i w[N];
    alignas(64) uint64_t lanes[8];
    for (int k = 0; k < N; k++) {
      for (int i = 0; i < 8; i++) lanes[i] = in[i].v[k];
      w[k] = _mm512_load_si512(lanes);
    }
    return from_words(w);
  }
  static CUZK_INLINE FpX8 blend(__mmask8 take_b, const FpX8 &a, const FpX8 &b) {
    FpX8 r;
    for (int j = 0; j < M; j++) r.l[j] = _mm512_mask_blend_epi64(take_b, a.l[j], b.l[j]);
    return r;
  }

  // Carries, or borrows, to the top: limbs of 52 bits again, the value as it was.
  CUZK_INLINE FpX8 normalized() const {
    FpX8 r;
    const __m512i mask = _mm512_set1_epi64(limb_mask);
    __m512i t = l[0];
#pragma GCC unroll 8
    for (int j = 0; j + 1 < M; j++) {
      r.l[j] = _mm512_and_si512(t, mask);
      t = _mm512_add_epi64(l[j + 1], _mm512_srai_epi64(t, 52));
    }
    r.l[M - 1] = t;
    return r;
  }
  // Limb by limb, not normalized.
  CUZK_INLINE FpX8 plus(const FpX8 &b) const {
    FpX8 r;
    for (int j = 0; j < M; j++) r.l[j] = _mm512_add_epi64(l[j], b.l[j]);
    return r;
  }
  CUZK_INLINE FpX8 minus(const FpX8 &b) const {
    FpX8 r;
    for (int j = 0; j < M; j++) r.l[j] = _mm512_sub_epi64(l[j], b.l[j]);
    return r;
  }
  template <int log_k>
  CUZK_INLINE FpX8 plus_modulus() const {
    FpX8 r;
    for (int j = 0; j < M; j++) r.l[j] = _mm512_add_epi64(l[j], modulus<log_k>(j));
    return r;
  }
  CUZK_INLINE FpX8 operator+(const FpX8 &b) const { return plus(b).normalized(); }
  // a - b + 2^log_k p, for b below that.
  template <int log_k>
  CUZK_INLINE FpX8 sub(const FpX8 &b) const {
    return minus(b).template plus_modulus<log_k>().normalized();
  }

  // Minus 2^log_k p in the lanes that are not below it.
  template <int log_k>
  CUZK_INLINE FpX8 reduced_once() const {
    FpX8 r;
    for (int j = 0; j < M; j++) r.l[j] = _mm512_sub_epi64(l[j], modulus<log_k>(j));
    r = r.normalized();
    return blend(_mm512_movepi64_mask(r.l[M - 1]), r, *this);
  }
  // Into [0, p) from [0, 2^(log_k + 1) p).
  template <int log_k>
  CUZK_INLINE FpX8 reduced() const {
    if constexpr (log_k == 0)
      return reduced_once<0>();
    else
      return reduced_once<log_k>().template reduced<log_k - 1>();
  }

  // Times 2^bits, without reduction.
  template <int shift>
  CUZK_INLINE FpX8 shifted() const {
    FpX8 r;
    const __m512i mask = _mm512_set1_epi64(limb_mask);
    r.l[0] = _mm512_and_si512(_mm512_slli_epi64(l[0], shift), mask);
#pragma GCC unroll 8
    for (int j = 1; j < M; j++)
      r.l[j] = _mm512_or_si512(_mm512_and_si512(_mm512_slli_epi64(l[j], shift), mask),
                               _mm512_srli_epi64(l[j - 1], 52 - shift));
    return r;
  }

  // a b / R, both normalized.
  CUZK_INLINE FpX8 operator*(const FpX8 &b) const {
    const __m512i zero = _mm512_setzero_si512();
    const __m512i n0 = _mm512_set1_epi64(static_cast<long long>(Montgomery<P>::n0 & limb_mask));
    __m512i t[M + 1];
    for (int j = 0; j <= M; j++) t[j] = zero;
#pragma GCC unroll 8
    for (int i = 0; i < M; i++) {
      const __m512i bi = b.l[i];
#pragma GCC unroll 8
      for (int j = 0; j < M; j++) t[j] = _mm512_madd52lo_epu64(t[j], l[j], bi);
      const __m512i m = _mm512_madd52lo_epu64(zero, t[0], n0);
      t[0] = _mm512_madd52lo_epu64(t[0], m, modulus<0>(0));
      const __m512i carry = _mm512_srli_epi64(t[0], 52);
#pragma GCC unroll 8
      for (int j = 1; j < M; j++) t[j] = _mm512_madd52lo_epu64(t[j], m, modulus<0>(j));
#pragma GCC unroll 8
      for (int j = 0; j < M; j++) {
        t[j] = _mm512_madd52hi_epu64(t[j + 1], l[j], bi);
        t[j] = _mm512_madd52hi_epu64(t[j], m, modulus<0>(j));
      }
      t[0] = _mm512_add_epi64(t[0], carry);
      t[M] = zero;
    }
    FpX8 r;
    for (int j = 0; j < M; j++) r.l[j] = t[j];
    return r.normalized();
  }
  CUZK_INLINE FpX8 sqr() const { return *this * *this; }
};

// Bounds for Fp2 (p < R / 84): operands of a product have components below 5 p and 9 p at most, and it comes out below
// 6 p.
template <class Params>
struct Fp2X8 {
  using P = Params;
  using V = FpX8<P>;
  using Scalar = Fp2<Fp<P>>;
  static constexpr int N = P::limbs;
  static constexpr int words = 2 * N;
  static constexpr int radix_bits = V::radix_bits;

  V c0, c1;

  static CUZK_INLINE Fp2X8 from_words(const __m512i *w) { return {V::from_words(w), V::from_words(w + N)}; }
  CUZK_INLINE void to_words(__m512i *w) const {
    c0.to_words(w);
    c1.to_words(w + N);
  }
  static CUZK_INLINE Fp2X8 broadcast(const Scalar &s) { return {V::broadcast(s.c0), V::broadcast(s.c1)}; }
  CUZK_INLINE void to_lanes(Scalar *out) const {
    typename V::Scalar part[8];
    c0.to_lanes(part);
    for (int i = 0; i < 8; i++) out[i].c0 = part[i];
    c1.to_lanes(part);
    for (int i = 0; i < 8; i++) out[i].c1 = part[i];
  }
  static CUZK_INLINE Fp2X8 from_lanes(const Scalar *in) {
    typename V::Scalar part[2][8];
    for (int i = 0; i < 8; i++) {
      part[0][i] = in[i].c0;
      part[1][i] = in[i].c1;
    }
    return {V::from_lanes(part[0]), V::from_lanes(part[1])};
  }
  static CUZK_INLINE Fp2X8 blend(__mmask8 take_b, const Fp2X8 &a, const Fp2X8 &b) {
    return {V::blend(take_b, a.c0, b.c0), V::blend(take_b, a.c1, b.c1)};
  }
  CUZK_INLINE Fp2X8 normalized() const { return {c0.normalized(), c1.normalized()}; }
  CUZK_INLINE Fp2X8 minus(const Fp2X8 &b) const { return {c0.minus(b.c0), c1.minus(b.c1)}; }
  template <int log_k>
  CUZK_INLINE Fp2X8 plus_modulus() const {
    return {c0.template plus_modulus<log_k>(), c1.template plus_modulus<log_k>()};
  }
  template <int log_k>
  CUZK_INLINE Fp2X8 sub(const Fp2X8 &b) const {
    return {c0.template sub<log_k>(b.c0), c1.template sub<log_k>(b.c1)};
  }
  template <int log_k>
  CUZK_INLINE Fp2X8 reduced() const {
    return {c0.template reduced<log_k>(), c1.template reduced<log_k>()};
  }
  template <int shift>
  CUZK_INLINE Fp2X8 shifted() const {
    return {c0.template shifted<shift>(), c1.template shifted<shift>()};
  }

  CUZK_INLINE Fp2X8 operator*(const Fp2X8 &b) const {  // Karatsuba
    const V x = c0 * b.c0, y = c1 * b.c1, z = (c0 + c1) * (b.c0 + b.c1);
    return {x.template sub<1>(y),
            z.minus(x).minus(y).template plus_modulus<0>().template plus_modulus<1>().normalized()};
  }
  CUZK_INLINE Fp2X8 sqr() const {  // components below 5 p
    const V t = c0 * c1;
    const V difference = c0.minus(c1).template plus_modulus<2>().template plus_modulus<0>().normalized();
    return {(c0 + c1) * difference, t + t};
  }
};

template <class F>
struct EightOf;
template <class P>
struct EightOf<Fp<P>> {
  using type = FpX8<P>;
  static constexpr int log_bound = 1;  // results of the formulas of batch_add_ifma.hpp are below 2^(log_bound + 1) p
};
template <class P>
struct EightOf<Fp2<Fp<P>>> {
  using type = Fp2X8<P>;
  static constexpr int log_bound = 2;
};

}  // namespace CUZK_PATH
}  // namespace cuzk
