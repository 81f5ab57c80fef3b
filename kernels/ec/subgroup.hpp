// Whether a point of the curve has order r.
//
// BN254's G1 has no other points. On BLS12-381 the endomorphisms decide it (Scott, "A note on group membership tests for G1, G2
// and GT on BLS pairing-friendly curves", eprint 2021/1130), with z the curve's parameter, |z| = 0xd201000000010000, z < 0:
//   G1: (beta x, y) = -[z^2] P, beta the cube root of unity with eigenvalue -z^2
//   G2: psi(P) = [z] P, psi the untwist-Frobenius-twist map
// Elsewhere [r] P = 0.
#pragma once
#include "../pairing/constants.hpp"
#include "curves.hpp"

namespace cuzk {
namespace CUZK_PATH {

template <class F>
bool equals(const Xyzz<F> &p, const Affine<F> &q) {
  if (p.is_infinity() || q.is_infinity()) return p.is_infinity() == q.is_infinity();
  return p.x == q.x * p.zz && p.y == q.y * p.zzz;
}

template <class F>
Xyzz<F> multiply(const Xyzz<F> &p, uint64_t k) {
  Xyzz<F> r = Xyzz<F>::infinity();
  for (int i = 63; i >= 0; i--) {
    r = r.dbl();
    if (k >> i & 1) r.add(p);
  }
  return r;
}

template <class Curve, class F>
struct Subgroup {
  static bool contains(const Affine<F> &p) { return multiply(p, Curve::Fr::P::modulus, 4).is_infinity(); }
};

template <>
struct Subgroup<Bn254, Bn254Fq> {
  static bool contains(const Affine<Bn254Fq> &) { return true; }
};

struct Bls12_381Parameter {
  static constexpr uint64_t z = 0xd201000000010000;  // without its sign
};

template <>
struct Subgroup<Bls12_381, Bls12_381Fq> {
  using Fq = Bls12_381Fq;

  // 2^((q - 1) / 3)
  static const Fq &beta() {
    static const Fq b = Fq::raw(Limbs<6>{{0x2e01fffffffefffe, 0xde17d813620a0002, 0xddb3a93be6f89688, 0xba69c6076a0f77ea,
                                          0x5f19672fdf76ce51, 0x0000000000000000}})
                            .to_mont();
    return b;
  }
  static bool contains(const Affine<Fq> &p) {
    if (p.is_infinity()) return true;
    const Xyzz<Fq> zp = multiply(p, &Bls12_381Parameter::z, 1);
    return equals(-multiply(zp, Bls12_381Parameter::z), Affine<Fq>{p.x * beta(), p.y});
  }
};

template <>
struct Subgroup<Bls12_381, Bls12_381Fq2> {
  using Fq = Bls12_381Fq;
  using Fq2 = Bls12_381Fq2;

  // psi(x, y) = (conj(x) / xi^((q - 1) / 3), conj(y) / xi^((q - 1) / 2)), xi = 1 + u
  static const Affine<Fq2> &psi_factors() {
    const auto &gamma = Bls12_381PairingConstants::gamma1;
    static const Affine<Fq2> factors = {Fq2::load(gamma[1]).inverse(), Fq2::load(gamma[2]).inverse()};
    return factors;
  }
  static bool contains(const Affine<Fq2> &p) {
    if (p.is_infinity()) return true;
    const Affine<Fq2> &k = psi_factors();
    const Affine<Fq2> psi = {p.x.conjugate() * k.x, p.y.conjugate() * k.y};
    return equals(-multiply(p, &Bls12_381Parameter::z, 1), psi);
  }
};

}  // namespace CUZK_PATH
}  // namespace cuzk
