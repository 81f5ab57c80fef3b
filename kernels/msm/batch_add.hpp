// Additions of many independent pairs of affine points with one inversion in all.
//
// lambda needs 1/(x2 - x1); with Montgomery's trick an inversion costs three multiplications, so that an addition takes
// five multiplications and a squaring, against ten for a mixed addition in XYZZ coordinates.
#pragma once
#include "../ec/point.hpp"

namespace cuzk {
namespace CUZK_PATH {

// What an addition of two points comes to.
enum class PairKind : uint8_t {
  add,       // different x
  dbl,       // equal points
  first,     // the second is infinity
  second,    // the first is infinity
  infinity,  // opposite points
};

// Sets d to what has to be inverted; 1 where nothing has.
template <class F>
PairKind classify_pair(const Affine<F> &a, const Affine<F> &b, F &d) {
  d = F::one();
  if (b.is_infinity()) return PairKind::first;
  if (a.is_infinity()) return PairKind::second;
  if (a.x != b.x) {
    d = b.x - a.x;
    return PairKind::add;
  }
  if (a.y != b.y || a.y.is_zero()) return PairKind::infinity;
  d = a.y.dbl();
  return PairKind::dbl;
}

// a + b, given 1/d of classify_pair.
template <class F>
Affine<F> finish_pair(PairKind kind, const Affine<F> &a, const Affine<F> &b, const F &inverse) {
  F lambda;
  switch (kind) {
    case PairKind::first: return a;
    case PairKind::second: return b;
    case PairKind::infinity: return Affine<F>::infinity();
    case PairKind::dbl: {
      const F xx = a.x.sqr();
      lambda = (xx.dbl() + xx) * inverse;
      break;
    }
    case PairKind::add: lambda = (b.y - a.y) * inverse; break;
  }
  const F x = lambda.sqr() - a.x - b.x;
  return {x, lambda * (a.x - x) - a.y};
}

template <class F>
class BatchAdder {
 public:
  static constexpr size_t scratch_bytes_per_pair = 2 * sizeof(F) + 1;
  static size_t scratch_bytes(size_t pairs) { return (pairs * scratch_bytes_per_pair + 63) / 64 * 64; }

  BatchAdder(void *scratch, size_t pairs)
      : d_(static_cast<F *>(scratch)), before_(d_ + pairs), kind_(reinterpret_cast<PairKind *>(before_ + pairs)) {}

  // points[i] += points[i + stride] for each i of index[0..count). No point may take part in two pairs.
  void add(Affine<F> *points, const uint32_t *index, size_t count, size_t stride) {
    if (count == 0) return;
    F product[chains];
    for (F &p : product) p = F::one();
    for (size_t k = 0; k < count; k++) {
      const Affine<F> &a = points[index[k]], &b = points[index[k] + stride];
      F d = b.x - a.x;
      kind_[k] = PairKind::add;
      if (__builtin_expect(d.is_zero() || a.is_infinity() || b.is_infinity(), 0)) kind_[k] = classify_pair(a, b, d);
      d_[k] = d;
      F &p = product[k % chains];
      before_[k] = p;
      p = p * d;
    }
    F inverse[chains];
    invert(product, inverse);
    for (size_t k = count; k-- > 0;) {
      F &chain = inverse[k % chains];
      const F inv = chain * before_[k];
      chain = chain * d_[k];
      Affine<F> &a = points[index[k]];
      a = finish_pair(kind_[k], a, points[index[k] + stride], inv);
    }
  }

 private:
  static constexpr size_t chains = 4;  // a multiplication's latency is longer than its throughput

  static void invert(const F *a, F *inverse) {
    const F low = a[0] * a[1], high = a[2] * a[3];
    const F all = (low * high).inverse();
    const F of_low = all * high, of_high = all * low;
    inverse[0] = of_low * a[1];
    inverse[1] = of_low * a[0];
    inverse[2] = of_high * a[3];
    inverse[3] = of_high * a[2];
  }

  F *d_, *before_;  // what is inverted, and the product of all before it in its chain
  PairKind *kind_;
};

}  // namespace CUZK_PATH
}  // namespace cuzk
