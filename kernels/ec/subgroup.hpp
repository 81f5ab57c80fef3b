// Whether a point of a curve has order r, by an endomorphism that acts on the points of order r, and on no others, as
// multiplication by a short number.
//
// Scott, "A note on group membership tests for G1, G2 and GT on BLS pairing-friendly curves" (eprint 2021/1130);
// El Housni, Guillevic and Piellard, "Co-factor clearing and subgroup membership testing on pairing-friendly curves"
// (eprint 2022/352). Why it is enough: phi^2 + phi + 1 = 0 turns phi(P) = -x^2 P into (x^4 - x^2 + 1) P = r P = 0;
// psi^2 - t psi + q = 0 turns psi(Q) = (t - 1) Q into (q + 1 - t) Q = 0, where q + 1 - t is r on BN254, and on
// BLS12-381 r times a number that has no factor in common with the twist's cofactor.
#pragma once
#include "curves.hpp"

namespace cuzk {
namespace CUZK_PATH {

template <class F>
bool equals(const Xyzz<F> &p, const Affine<F> &q) {
  if (p.is_infinity() || q.is_infinity()) return p.is_infinity() && q.is_infinity();
  return q.x * p.zz == p.x && q.y * p.zzz == p.y;
}

// k * p for k of one limb.
template <class F>
Xyzz<F> multiply(const Xyzz<F> &p, uint64_t k) {
  Xyzz<F> r = p;
  for (int i = 62 - __builtin_clzll(k); i >= 0; i--) {
    r = r.dbl();
    if (k >> i & 1) r.add(p);
  }
  return r;
}

// (q - 1) / divisor.
template <class P>
void fraction_of_order(uint64_t *out, uint64_t divisor) {
  unsigned __int128 rest = 0;
  for (int i = P::limbs - 1; i >= 0; i--) {
    rest = rest << 64 | (i == 0 ? P::modulus[0] - 1 : P::modulus[i]);
    out[i] = static_cast<uint64_t>(rest / divisor);
    rest %= divisor;
  }
}

// The Frobenius endomorphism of the twist: (conj(x) c^((q - 1) / 3), conj(y) c^((q - 1) / 2)).
template <class Curve>
class TwistFrobenius {
 public:
  using F = typename Curve::Fq2;
  using P = typename Curve::Fq::P;

  explicit TwistFrobenius(const F &c) {
    uint64_t e[P::limbs];
    fraction_of_order<P>(e, 3);
    of_x_ = c.pow(e, P::limbs);
    fraction_of_order<P>(e, 2);
    of_y_ = c.pow(e, P::limbs);
  }
  Affine<F> operator()(const Affine<F> &q) const { return {q.x.conjugate() * of_x_, q.y.conjugate() * of_y_}; }

 private:
  F of_x_, of_y_;
};

// SubgroupTest<Curve, F>()(p): p, on the curve whose coordinates lie in F, has order r (or is infinity).
template <class Curve, class F>
class SubgroupTest;

template <>
class SubgroupTest<Bn254, Bn254Fq> {
 public:
  static constexpr bool always = true;  // the whole curve has order r
  bool operator()(const Affine<Bn254Fq> &) const { return true; }
};

template <>
class SubgroupTest<Bn254, Bn254Fq2> {
 public:
  static constexpr bool always = false;

  SubgroupTest() : frobenius_(Bn254Fq2{Bn254Fq::from_u64(9), Bn254Fq::one()}) {}
  bool operator()(const Affine<Bn254Fq2> &q) const {
    return equals(cuzk::CUZK_PATH::multiply(q, trace_less_one, 2), frobenius_(q));
  }

 private:
  static constexpr uint64_t trace_less_one[2] = {0xf83e9682e87cfd46, 0x6f4d8248eeb859fb};  // 6 x^2
  TwistFrobenius<Bn254> frobenius_;
};

constexpr uint64_t bls12_381_minus_x = 0xd201000000010000;

template <>
class SubgroupTest<Bls12_381, Bls12_381Fq> {
 public:
  static constexpr bool always = false;

  SubgroupTest() {
    uint64_t e[6];
    fraction_of_order<Bls12_381FqParams>(e, 3);
    beta_ = Bls12_381Fq::from_u64(2).pow(e, 6);  // the cube root of 1 that belongs to -x^2
  }
  bool operator()(const Affine<Bls12_381Fq> &p) const {
    const auto once = multiply(Xyzz<Bls12_381Fq>::from(p), bls12_381_minus_x);
    return equals(-multiply(once, bls12_381_minus_x), {p.x * beta_, p.y});
  }

 private:
  Bls12_381Fq beta_;
};

template <>
class SubgroupTest<Bls12_381, Bls12_381Fq2> {
 public:
  static constexpr bool always = false;

  SubgroupTest() : frobenius_(Bls12_381Fq2{Bls12_381Fq::one(), Bls12_381Fq::one()}.inverse()) {}
  bool operator()(const Affine<Bls12_381Fq2> &q) const {
    return equals(-multiply(Xyzz<Bls12_381Fq2>::from(q), bls12_381_minus_x), frobenius_(q));
  }

 private:
  TwistFrobenius<Bls12_381> frobenius_;
};

}  // namespace CUZK_PATH
}  // namespace cuzk
