// Transform of transform.hpp with eight columns at a time.
//
// Twiddles and factors have radix R = 2^(52 M), data keeps its own: a product with one of them divides R out again.
// Decimating in time adds products below 2 p to values that grow by 2 p a level: below 20 p after the nine levels of a
// pass, which fits the limbs and is a valid operand; a product with R mod p brings it back. Decimating in frequency
// keeps everything below 2 p.
//
// The last three levels join neighbours within eight columns. There the eight lanes are eight blocks (rows), and each
// vector one of their eight elements.
#pragma once
#include "../capi/run.hpp"
#include "../ff/vec_ifma.hpp"
#include "passes.hpp"
#include "table.hpp"

namespace cuzk {
namespace CUZK_PATH {

template <class Fr>
class TransformX8 {
 public:
  using V = FpX8<typename Fr::P>;
  static constexpr uint32_t min_log_n = 6;  // eight rows of eight columns

  // What all twiddles and factors are multiplied by in the table: 2^(52 M) / 2^256.
  static Fr radix_factor() {
    Fr x = Fr::one();
    for (int i = 64 * Fr::N; i < V::radix_bits; i++) x = x.dbl();
    return x;
  }

  TransformX8(Fr *data, uint32_t log_n, Run &run)
      : data_(data), log_n_(log_n), run_(run), passes_(log_n, contiguous_levels, gathered_levels) {}

  // As Transform's; factors, where given, are multiplied to the result.
  bool to_reversed(const Fr *twiddles, const Fr *factors) {
    for (uint32_t i = 0; i + 1 < passes_.count; i++)
      if (!gathered_pass<true>(passes_.pass[i], twiddles)) return false;
    const Pass p = passes_.pass[passes_.count - 1];
    return run_.parallel(size_t{1} << p.first, [&](size_t block, unsigned) {
      const size_t at = block << p.levels;
      contiguous_forward(data_ + at, p.levels, twiddles, block, factors ? factors + at : nullptr);
    });
  }

  bool to_natural(const Fr *twiddles) {
    const Pass p = passes_.pass[passes_.count - 1];
    const bool done = run_.parallel(size_t{1} << p.first, [&](size_t block, unsigned) {
      contiguous_backward(data_ + (block << p.levels), p.levels, twiddles, block);
    });
    if (!done) return false;
    for (uint32_t i = passes_.count - 1; i-- > 0;)
      if (!gathered_pass<false>(passes_.pass[i], twiddles)) return false;
    return true;
  }

 private:
  static constexpr uint32_t contiguous_levels = 9;  // 2^6 rows of 320 bytes
  static constexpr uint32_t gathered_levels = 6;
  static constexpr uint32_t max_rows = 64;

  using Pass = Passes::Pass;

  template <bool forward>
  bool gathered_pass(const Pass &p, const Fr *twiddles) {
    const uint32_t log_block = log_n_ - p.first, log_pitch = log_block - p.levels;
    const uint64_t tiles = uint64_t{1} << (log_pitch - 3);
    return run_.parallel(tiles << p.first, [&](size_t task, unsigned) {
      const uint64_t block = task / tiles;
      Fr *x = data_ + (block << log_block) + task % tiles * 8;
      V tile[max_rows];
      const size_t rows = size_t{1} << p.levels;
      for (size_t r = 0; r < rows; r++) tile[r] = load_row(x + (r << log_pitch));
      if (forward) {
        forward_levels(tile, p.levels, twiddles, block);
        const V one = V::broadcast(radix_factor());
        for (size_t r = 0; r < rows; r++)
          store_row(x + (r << log_pitch), (tile[r].normalized() * one).template reduced_once<0>());
      } else {
        backward_levels(tile, p.levels, twiddles, block);
        for (size_t r = 0; r < rows; r++) store_row(x + (r << log_pitch), tile[r].template reduced_once<0>());
      }
    });
  }

  static void contiguous_forward(Fr *x, uint32_t levels, const Fr *twiddles, uint64_t block, const Fr *factors) {
    V tile[max_rows];
    const uint32_t column_levels = levels - 3;
    const size_t rows = size_t{1} << column_levels;
    for (size_t r = 0; r < rows; r++) tile[r] = load_row(x + 8 * r);
    forward_levels(tile, column_levels, twiddles, block);
    const V one = V::broadcast(radix_factor());
    for (size_t r = 0; r < rows; r += 8) {
      V *e = tile + r;
      transpose(e);
      const uint64_t number = (block << column_levels) + r;
      const V w = load_lanes(twiddles + number, 1);
      for (int c = 0; c < 4; c++) forward_pair(e[c], e[c + 4], w);
      for (int c = 0; c < 2; c++) {
        const V w2 = load_lanes(twiddles + 2 * number + c, 2);
        forward_pair(e[4 * c], e[4 * c + 2], w2);
        forward_pair(e[4 * c + 1], e[4 * c + 3], w2);
      }
      for (int c = 0; c < 4; c++) forward_pair(e[2 * c], e[2 * c + 1], load_lanes(twiddles + 4 * number + c, 4));
      for (int c = 0; c < 8; c++) {
        const V factor = factors ? load_lanes(factors + 8 * r + c, 8) : one;
        store_lanes(x + 8 * r + c, 8, (e[c].normalized() * factor).template reduced_once<0>());
      }
    }
  }

  static void contiguous_backward(Fr *x, uint32_t levels, const Fr *twiddles, uint64_t block) {
    V tile[max_rows];
    const uint32_t column_levels = levels - 3;
    const size_t rows = size_t{1} << column_levels;
    for (size_t r = 0; r < rows; r += 8) {
      V *e = tile + r;
      for (int c = 0; c < 8; c++) e[c] = load_lanes(x + 8 * r + c, 8);
      const uint64_t number = (block << column_levels) + r;
      for (int c = 0; c < 4; c++) backward_pair(e[2 * c], e[2 * c + 1], load_lanes(twiddles + 4 * number + c, 4));
      for (int c = 0; c < 2; c++) {
        const V w2 = load_lanes(twiddles + 2 * number + c, 2);
        backward_pair(e[4 * c], e[4 * c + 2], w2);
        backward_pair(e[4 * c + 1], e[4 * c + 3], w2);
      }
      const V w = load_lanes(twiddles + number, 1);
      for (int c = 0; c < 4; c++) backward_pair(e[c], e[c + 4], w);
      transpose(e);
    }
    backward_levels(tile, column_levels, twiddles, block);
    for (size_t r = 0; r < rows; r++) store_row(x + 8 * r, tile[r].template reduced_once<0>());
  }

  static void forward_levels(V *tile, uint32_t levels, const Fr *twiddles, uint64_t block) {
    for (uint32_t level = 0; level < levels; level++) {
      const size_t half = size_t{1} << (levels - level - 1);
      for (size_t q = 0; q < size_t{1} << level; q++) {
        const V w = V::broadcast(twiddles[(block << level) + q]);
        for (size_t r = 2 * q * half; r < (2 * q + 1) * half; r++) forward_pair(tile[r], tile[r + half], w);
      }
    }
  }
  static void backward_levels(V *tile, uint32_t levels, const Fr *twiddles, uint64_t block) {
    for (uint32_t level = levels; level-- > 0;) {
      const size_t half = size_t{1} << (levels - level - 1);
      for (size_t q = 0; q < size_t{1} << level; q++) {
        const V w = V::broadcast(twiddles[(block << level) + q]);
        for (size_t r = 2 * q * half; r < (2 * q + 1) * half; r++) backward_pair(tile[r], tile[r + half], w);
      }
    }
  }

  static CUZK_INLINE void forward_pair(V &a, V &b, const V &w) {
    const V product = b.normalized() * w;
    b = a.minus(product).template plus_modulus<1>();
    a = a.plus(product);
  }
  static CUZK_INLINE void backward_pair(V &a, V &b, const V &w) {
    const V difference = a.template sub<1>(b);
    a = (a + b).template reduced_once<1>();
    b = difference * w;
  }

  // Eight consecutive elements.
  static CUZK_INLINE V load_row(const Fr *x) {
    const __m512i low = _mm512_setr_epi64(0, 4, 8, 12, 1, 5, 9, 13),
                  high = _mm512_setr_epi64(2, 6, 10, 14, 3, 7, 11, 15);
    __m512i z[4], w[4];
    for (int i = 0; i < 4; i++) z[i] = _mm512_loadu_si512(x + 2 * i);
    const __m512i a = _mm512_permutex2var_epi64(z[0], low, z[1]), b = _mm512_permutex2var_epi64(z[0], high, z[1]);
    const __m512i c = _mm512_permutex2var_epi64(z[2], low, z[3]), d = _mm512_permutex2var_epi64(z[2], high, z[3]);
    w[0] = _mm512_shuffle_i64x2(a, c, 0x44);
    w[1] = _mm512_shuffle_i64x2(a, c, 0xee);
    w[2] = _mm512_shuffle_i64x2(b, d, 0x44);
    w[3] = _mm512_shuffle_i64x2(b, d, 0xee);
    return V::from_words(w);
  }
  static CUZK_INLINE void store_row(Fr *x, const V &v) {
    const __m512i low = _mm512_setr_epi64(0, 4, 8, 12, 1, 5, 9, 13),
                  high = _mm512_setr_epi64(2, 6, 10, 14, 3, 7, 11, 15);
    __m512i w[4];
    v.to_words(w);
    const __m512i a = _mm512_shuffle_i64x2(w[0], w[1], 0x44), b = _mm512_shuffle_i64x2(w[2], w[3], 0x44);
    const __m512i c = _mm512_shuffle_i64x2(w[0], w[1], 0xee), d = _mm512_shuffle_i64x2(w[2], w[3], 0xee);
    _mm512_storeu_si512(x, _mm512_permutex2var_epi64(a, low, b));
    _mm512_storeu_si512(x + 2, _mm512_permutex2var_epi64(a, high, b));
    _mm512_storeu_si512(x + 4, _mm512_permutex2var_epi64(c, low, d));
    _mm512_storeu_si512(x + 6, _mm512_permutex2var_epi64(c, high, d));
  }

  // Lane i is x[i * stride].
  static CUZK_INLINE V load_lanes(const Fr *x, size_t stride) {
    const void *p[8];
    __m512i w[8];
    for (int i = 0; i < 8; i++) p[i] = x + i * stride;
    load_words<4>(p, w);
    return V::from_words(w);
  }
  static CUZK_INLINE void store_lanes(Fr *x, size_t stride, const V &v) {
    void *p[8];
    __m512i w[8];
    for (int i = 0; i < 8; i++) p[i] = x + i * stride;
    v.to_words(w);
    for (int i = 4; i < 8; i++) w[i] = _mm512_setzero_si512();
    store_words<4>(p, w, 0xff);
  }

  static CUZK_INLINE void transpose(V *e) {
#pragma GCC unroll 8
    for (int j = 0; j < V::M; j++) {
      __m512i r[8];
      for (int i = 0; i < 8; i++) r[i] = e[i].l[j];
      transpose_8x8(r);
      for (int i = 0; i < 8; i++) e[i].l[j] = r[i];
    }
  }

  Fr *data_;
  uint32_t log_n_;
  Run &run_;
  Passes passes_;
};

}  // namespace CUZK_PATH
}  // namespace cuzk
