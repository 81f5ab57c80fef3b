// BatchAdder of batch_add.hpp with eight pairs at a time.
//
// Everything in memory has the Montgomery radix S = 2^(64 N), a product of vectors divides by R = 2^(52 M). No operand
// is converted; instead the inverses carry the radix that makes the results come out right. With l = (52 M + 64 N) / 2:
//   lambda = dy / d       has radix 2^l, so that lambda^2 / R has radix S again;
//   y3 = lambda (x1 - x3) takes x1 - x3 shifted by 52 M - l bits;
//   1 / d                 has radix 2^i, i = l + 52 M - 64 N, so that lambda gets its own from dy with radix S;
//   products of the d     are taken as they come: the inverses of a chain follow from 2^(i + 64 N) / (its last product).
#pragma once
#include "../ff/batch_inverse.hpp"
#include "../ff/vec_ifma.hpp"
#include "batch_add.hpp"

namespace cuzk {
namespace CUZK_PATH {

template <class F>
class BatchAdderX8 {
 public:
  using V = typename EightOf<F>::type;
  using Point = Affine<F>;
  static constexpr size_t group_bytes = 2 * sizeof(V) + 64;
  static size_t scratch_bytes(size_t pairs) { return (pairs / 8 + 1) * group_bytes; }

  BatchAdderX8(void *scratch, size_t pairs)
      : d_(static_cast<V *>(scratch)), before_(d_ + (pairs / 8 + 1)),
        special_(reinterpret_cast<uint8_t *>(before_ + (pairs / 8 + 1))) {}

  // As BatchAdder::add.
  void add(Point *points, const uint32_t *index, size_t count, size_t stride) {
    if (count == 0) return;
    const size_t groups = (count + 7) / 8;
    V product[chains];
    for (V &p : product) p = V::broadcast(F::one());
    for (size_t g = 0; g < groups; g++) {
      d_[g] = differences(points, index + 8 * g, lanes(count, g), stride, special_[g]);
      before_[g] = product[g % chains];
      product[g % chains] = product[g % chains] * d_[g];
    }
    V inverse[chains];
    invert(product, inverse);
    for (size_t g = groups; g-- > 0;) {
      V &chain = inverse[g % chains];
      const V inv = chain * before_[g];
      chain = chain * d_[g];
      finish(points, index + 8 * g, lanes(count, g), stride, special_[g], inv);
    }
  }

 private:
  static constexpr size_t chains = 2;
  static constexpr int log_bound = EightOf<F>::log_bound;
  static constexpr int word_bits = 64 * V::N, radix_bits = V::radix_bits;
  static constexpr int lambda_bits = (radix_bits + word_bits) / 2;
  static constexpr int inverse_bits = lambda_bits + radix_bits - word_bits;

  static CUZK_INLINE __mmask8 lanes(size_t count, size_t g) {
    const size_t left = count - 8 * g;
    return left >= 8 ? 0xff : static_cast<__mmask8>((1u << left) - 1);
  }

  // x2 - x1; where that is 0, or a point may be infinity (x = 0), what classify_pair says.
  static CUZK_INLINE V differences(const Point *points, const uint32_t *index, __mmask8 used, size_t stride,
                                   uint8_t &special) {
    const void *a[8], *b[8];
    for (int i = 0; i < 8; i++) {
      const size_t at = used >> i & 1 ? index[i] : index[0];
      a[i] = &points[at];
      b[i] = &points[at + stride];
    }
    __m512i x1[(V::words + 7) / 8 * 8], x2[(V::words + 7) / 8 * 8];
    load_words<V::words>(a, x1);
    load_words<V::words>(b, x2);
    __m512i any1 = x1[0], any2 = x2[0], differ = _mm512_xor_si512(x1[0], x2[0]);
    for (int k = 1; k < V::words; k++) {
      any1 = _mm512_or_si512(any1, x1[k]);
      any2 = _mm512_or_si512(any2, x2[k]);
      differ = _mm512_or_si512(differ, _mm512_xor_si512(x1[k], x2[k]));
    }
    V d = V::from_words(x2).template sub<0>(V::from_words(x1));
    const __mmask8 odd =
        static_cast<__mmask8>(~(_mm512_test_epi64_mask(any1, any1) & _mm512_test_epi64_mask(any2, any2) &
                                _mm512_test_epi64_mask(differ, differ)));
    special = odd & used;
    if (__builtin_expect(odd != 0 || used != 0xff, 0)) {
      F values[8];
      for (int i = 0; i < 8; i++) {
        values[i] = F::one();
        if (special >> i & 1) classify_pair(points[index[i]], points[index[i] + stride], values[i]);
      }
      d = V::blend(static_cast<__mmask8>(odd | ~used), d, V::from_lanes(values));
    }
    return d;
  }

  static CUZK_INLINE void finish(Point *points, const uint32_t *index, __mmask8 used, size_t stride, uint8_t special,
                                 const V &inverse) {
    constexpr int coordinates = (2 * V::words + 7) / 8 * 8;
    void *a[8];
    const void *b[8];
    for (int i = 0; i < 8; i++) {
      const size_t at = used >> i & 1 ? index[i] : index[0];
      a[i] = &points[at];
      b[i] = &points[at + stride];
    }
    __m512i w1[coordinates], w2[coordinates];
    load_words<2 * V::words>(a, w1);
    load_words<2 * V::words>(b, w2);
    const V x1 = V::from_words(w1), y1 = V::from_words(w1 + V::words);
    const V x2 = V::from_words(w2), y2 = V::from_words(w2 + V::words);
    const V lambda = y2.template sub<0>(y1) * inverse;
    const V x3 = lambda.sqr().minus(x1).minus(x2).template plus_modulus<1>().normalized().template reduced<log_bound>();
    const V difference = x1.template sub<0>(x3).template shifted<radix_bits - lambda_bits>();
    const V y3 = (lambda * difference).template sub<0>(y1).template reduced<log_bound>();
    x3.to_words(w1);
    y3.to_words(w1 + V::words);
    store_words<2 * V::words>(a, w1, static_cast<__mmask8>(used & ~special));
    if (__builtin_expect(special != 0, 0)) finish_special(points, index, stride, special, inverse);
  }

  static void finish_special(Point *points, const uint32_t *index, size_t stride, uint8_t special, const V &inverse) {
    F inverses[8];
    inverse.template reduced<log_bound>().to_lanes(inverses);
    static const F factor = power_of_two(2 * word_bits - inverse_bits);
    for (int i = 0; i < 8; i++) {
      if (!(special >> i & 1)) continue;
      Point &a = points[index[i]];
      const Point &b = points[index[i] + stride];
      F d;
      const PairKind kind = classify_pair(a, b, d);
      a = finish_pair(kind, a, b, inverses[i] * factor);
    }
  }

  // 2^(inverse_bits + word_bits) / product of the chain, for every lane.
  static void invert(const V *product, V *inverse) {
    F values[8 * chains], room[8 * chains];
    for (size_t c = 0; c < chains; c++) product[c].template reduced<log_bound>().to_lanes(values + 8 * c);
    batch_inverse(values, room, 8 * chains);  // of P / 2^word_bits, with radix 2^word_bits: 2^(2 word_bits) / P
    static const F factor = power_of_two(inverse_bits);
    for (F &value : values) value = value * factor;
    for (size_t c = 0; c < chains; c++) inverse[c] = V::from_lanes(values + 8 * c);
  }

  // The limbs of 2^bits mod p, as a factor that multiplies limbs by 2^(bits - word_bits).
  static F power_of_two(int bits) {
    F x = F::one();  // 2^word_bits
    for (int i = word_bits; i < bits; i++) x = x.dbl();
    if (bits < word_bits) {
      const F half = F::one().dbl().inverse();  // 1/2 with radix 2^word_bits
      for (int i = bits; i < word_bits; i++) x = x * half;
    }
    return x;
  }

  V *d_, *before_;
  uint8_t *special_;  // lanes of each group that need classify_pair
};

}  // namespace CUZK_PATH
}  // namespace cuzk
