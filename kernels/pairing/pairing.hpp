// Optimal ate pairings of BN254 and BLS12-381: Miller loops over several pairs with shared squarings, and the final
// exponentiation. The value is exactly f^((q^12 - 1) / r), without the extra exponent that many implementations leave
// in, where f is f_{6x+2,Q} l l on BN254 and f_{x,Q} on BLS12-381, with x's sign: a loop over |x| gives the inverse.
//
// Sources:
//   [V]     Vercauteren: Optimal pairings, IEEE Trans. Inf. Theory 2010
//   [CLN]   Costello, Lange, Naehrig: Faster pairing computations on curves with high-degree twists, PKC 2010
//   [AKLGL] Aranha, Karabina, Longa, Gebotys, Lopez: Faster explicit formulas for computing pairings over ordinary
//           curves, EUROCRYPT 2011
//   [SBCDK] Scott, Benger, Charlemagne, Dominguez Perez, Kachisa: On the final exponentiation for calculating pairings
//           on ordinary elliptic curves, Pairing 2009
//   [FKR]   Fuentes-Castaneda, Knapp, Rodriguez-Henriquez: Faster hashing to G2, SAC 2011 (for BN curves a shorter
//           chain, to a multiple of the exponent; not used, since the standard value is wanted)
//   [HHT]   Hayashida, Hayasaka, Teruya: Efficient final exponentiation via cyclotomic structure for pairings over
//           families of elliptic curves, eprint 2020/875
#pragma once
#include "../ec/curves.hpp"
#include "constants.hpp"
#include "tower.hpp"

namespace cuzk {
namespace CUZK_PATH {

// f^e in the cyclotomic subgroup; digits of e in {-3, -1, 0, 1, 3}, most significant first, the first 1.
template <class T, size_t N>
Fq12<T> cyclotomic_pow(const Fq12<T> &f, const int8_t (&digits)[N]) {
  bool wide = false;
  for (int8_t d : digits) wide |= d == 3 || d == -3;
  const Fq12<T> cube = wide ? f.cyclotomic_sqr() * f : f;
  Fq12<T> result = f;
  for (size_t i = 1; i < N; i++) {
    result = result.cyclotomic_sqr();
    if (digits[i] == 0) continue;
    const Fq12<T> &power = digits[i] == 3 || digits[i] == -3 ? cube : f;
    result = result * (digits[i] < 0 ? power.conjugate() : power);
  }
  return result;
}

// BN254: xi = 9 + u, D-type twist y^2 = x^3 + 3 / xi, x > 0.
struct Bn254Tower {
  using Curve = Bn254;
  using Fq = Bn254Fq;
  using Fq2 = Bn254Fq2;
  using Constants = Bn254PairingConstants;
  static constexpr bool twist_is_d = true;
  static constexpr bool ends_with_frobenius = true;  // the Miller loop ends with two additions

  static Fq2 mul_xi(const Fq2 &a) {
    const Fq2 a8 = a.dbl().dbl().dbl();
    return {a8.c0 + a.c0 - a.c1, a8.c1 + a.c1 + a.c0};
  }
  static Fq2 mul_twist_3b(const Fq2 &a) { return a * from_limbs<Fq2>(Constants::twist_3b); }

  // f^((q^4 - q^2 + 1) / r) by the addition chain of [SBCDK], exact.
  static Fq12<Bn254Tower> hard_part(const Fq12<Bn254Tower> &f) {
    using F12 = Fq12<Bn254Tower>;
    const F12 fx = cyclotomic_pow(f, Constants::x);
    const F12 fx2 = cyclotomic_pow(fx, Constants::x);
    const F12 fx3 = cyclotomic_pow(fx2, Constants::x);
    const F12 fx2q = fx2.frobenius1();
    const F12 y0 = f.frobenius1() * f.frobenius2() * f.frobenius3();
    const F12 y1 = f.conjugate();
    const F12 y2 = fx2.frobenius2();
    const F12 y3 = fx.frobenius1().conjugate();
    const F12 y4 = (fx * fx2q).conjugate();
    const F12 y5 = fx2.conjugate();
    const F12 y6 = (fx3 * fx3.frobenius1()).conjugate();
    // y0 y1^2 y2^6 y3^12 y4^18 y5^30 y6^36
    const F12 t0 = y6.cyclotomic_sqr() * y4 * y5;
    const F12 t1 = ((y3 * y5 * t0).cyclotomic_sqr() * (t0 * y2)).cyclotomic_sqr();
    return (t1 * y1).cyclotomic_sqr() * (t1 * y0);
  }
};

// BLS12-381: xi = 1 + u, M-type twist y^2 = x^3 + 4 xi, x < 0.
struct Bls12_381Tower {
  using Curve = Bls12_381;
  using Fq = Bls12_381Fq;
  using Fq2 = Bls12_381Fq2;
  using Constants = Bls12_381PairingConstants;
  static constexpr bool twist_is_d = false;
  static constexpr bool ends_with_frobenius = false;

  static Fq2 mul_xi(const Fq2 &a) { return {a.c0 - a.c1, a.c0 + a.c1}; }
  static Fq2 mul_twist_3b(const Fq2 &a) {
    const Fq2 a4 = mul_xi(a).dbl().dbl();
    return a4.dbl() + a4;
  }

  // f^((q^4 - q^2 + 1) / r) = (f^((x - 1)^2 / 3))^((x + q) (x^2 + q^2 - 1)) f [HHT]. The usual saving of raising
  // to three times this exponent is not taken; the division by 3 costs about a dozen multiplications.
  static Fq12<Bls12_381Tower> hard_part(const Fq12<Bls12_381Tower> &f) {
    using F12 = Fq12<Bls12_381Tower>;
    const F12 third = cyclotomic_pow(f, Constants::third);            // (1 - x) / 3
    const F12 a = cyclotomic_pow(third, Constants::loop) * third;     // times (1 - x)
    const F12 b = cyclotomic_pow(a, Constants::loop).conjugate() * a.frobenius1();
    const F12 bx2 = cyclotomic_pow(cyclotomic_pow(b, Constants::loop), Constants::loop);
    return bx2 * b.frobenius2() * b.conjugate() * f;
  }
};

// f^((q^12 - 1) / r), f not zero.
template <class T>
Fq12<T> final_exponentiation(const Fq12<T> &f) {
  const Fq12<T> g = f.conjugate() * f.inverse();  // q^6 - 1
  return T::hard_part(g.frobenius2() * g);  // q^2 + 1: now in the cyclotomic subgroup
}

// One pair (P, Q), neither at infinity, on its way through the Miller loop.
template <class T>
class MillerPair {
 public:
  using F = typename T::Fq;
  using F2 = typename T::Fq2;

  MillerPair() = default;
  MillerPair(const Affine<F> &p, const Affine<F2> &q) : p_(p), q_(q), x_(q.x), y_(q.y), z_(F2::one()) {}

  // R = 2 R, f = f * (tangent at R, evaluated at P). Homogeneous coordinates [CLN, AKLGL], scaled by 4 so that nothing
  // is halved: 3 M + 6 S and two products with P's coordinates.
  void double_step(Fq12<T> &f) {
    const F2 xy = x_ * y_, b = y_.sqr(), c = z_.sqr(), j = x_.sqr();
    const F2 e = T::mul_twist_3b(c), e3 = e.dbl() + e, e_sqr = e.sqr();
    const F2 h = (y_ + z_).sqr() - b - c;
    x_ = (xy * (b - e3)).dbl();
    y_ = (b + e3).sqr() - (e_sqr.dbl() + e_sqr).dbl().dbl();
    z_ = (b * h).dbl().dbl();
    multiply_line(f, -h, j.dbl() + j, e - b);
  }

  // R = R + Q or R - Q, f = f * (line through R and that point, evaluated at P) [AKLGL].
  void add_step(Fq12<T> &f, bool negative) { add_point(f, q_.x, negative ? -q_.y : q_.y); }

  // The two additions that end the loop of a BN curve: pi(Q), then -pi^2(Q) [V].
  void frobenius_steps(Fq12<T> &f) {
    const auto &g1 = T::Constants::gamma1;
    const auto &g2 = T::Constants::gamma2;
    add_point(f, q_.x.conjugate() * from_limbs<F2>(g1[1]), q_.y.conjugate() * from_limbs<F2>(g1[2]));
    add_point(f, q_.x * from_limbs<F>(g2[1]), -q_.y * from_limbs<F>(g2[2]));
  }

 private:
  void add_point(Fq12<T> &f, const F2 &qx, const F2 &qy) {
    const F2 theta = y_ - qy * z_, lambda = x_ - qx * z_;
    const F2 d = lambda.sqr(), e = lambda * d, g = x_ * d;
    const F2 h = e + z_ * theta.sqr() - g.dbl();
    x_ = lambda * h;
    y_ = theta * (g - h) - y_ * e;
    z_ = z_ * e;
    multiply_line(f, lambda, -theta, theta * qx - lambda * qy);
  }

  // f times at_y yP + at_x xP w + constant w^3. That is for a D-type twist; for an M-type twist it is
  // at_y yP w^3 + at_x xP w^2 + constant, a line times w^3, which lies in Fq4 and vanishes in the final exponentiation.
  void multiply_line(Fq12<T> &f, const F2 &at_y, const F2 &at_x, const F2 &constant) const {
    const F2 ly = at_y * p_.y, lx = at_x * p_.x;
    if constexpr (T::twist_is_d)
      f = f.mul_034(ly, lx, constant);
    else
      f = f.mul_014(constant, lx, ly);
  }

  Affine<F> p_;
  Affine<F2> q_;
  F2 x_, y_, z_;  // R = (x_/z_, y_/z_) on the twist
};

// The product of the Miller functions of n pairs [V]; 1 for n = 0. For points of order r the additions meet no
// exceptional case: every multiple of Q on the way is neither 0 nor plus or minus the point that is added.
template <class T>
Fq12<T> miller_loop(MillerPair<T> *pairs, size_t n) {
  Fq12<T> f = Fq12<T>::one();
  bool first = true;
  for (int8_t digit : T::Constants::loop) {
    if (first) {  // R = Q holds already
      first = false;
      continue;
    }
    f = f.sqr();
    for (size_t i = 0; i < n; i++) {
      pairs[i].double_step(f);
      if (digit != 0) pairs[i].add_step(f, digit < 0);
    }
  }
  if constexpr (T::ends_with_frobenius) {
    for (size_t i = 0; i < n; i++) pairs[i].frobenius_steps(f);
    return f;
  } else {
    return f.conjugate();  // x < 0: the inverse, up to factors that the final exponentiation removes
  }
}

}  // namespace CUZK_PATH
}  // namespace cuzk
