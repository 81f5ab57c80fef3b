// The two curves: their fields and the constant b of each group.
#pragma once
#include "../ff/fp2.hpp"
#include "point.hpp"

namespace cuzk {
namespace CUZK_PATH {

// y^2 = x^3 + 3; the twist has b = 3 / (9 + u).
struct Bn254 {
  using Fq = Bn254Fq;
  using Fq2 = Bn254Fq2;
  using Fr = Bn254Fr;
  using G1 = Affine<Fq>;
  using G2 = Affine<Fq2>;

  static Fq b1() { return Fq::from_u64(3); }
  static Fq2 b2() { return Fq2{Fq::from_u64(9), Fq::one()}.inverse() * Fq::from_u64(3); }
};

// y^2 = x^3 + 4; the twist has b = 4 (1 + u).
struct Bls12_381 {
  using Fq = Bls12_381Fq;
  using Fq2 = Bls12_381Fq2;
  using Fr = Bls12_381Fr;
  using G1 = Affine<Fq>;
  using G2 = Affine<Fq2>;

  static Fq b1() { return Fq::from_u64(4); }
  static Fq2 b2() { return {Fq::from_u64(4), Fq::from_u64(4)}; }
};

// The constant b of the group whose coordinates lie in F.
template <class Curve, class F>
struct GroupConstant;
template <class Curve>
struct GroupConstant<Curve, typename Curve::Fq> {
  static typename Curve::Fq b() { return Curve::b1(); }
};
template <class Curve>
struct GroupConstant<Curve, typename Curve::Fq2> {
  static typename Curve::Fq2 b() { return Curve::b2(); }
};

}  // namespace CUZK_PATH
}  // namespace cuzk
