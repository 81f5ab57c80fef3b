// The tower Fq12 = Fq6[w]/(w^2 - v), Fq6 = Fq2[v]/(v^3 - xi), Fq2 = Fq[u]/(u^2 + 1) over a parameter struct T:
//   T::Fq, T::Fq2      the fields below, elements in Montgomery form
//   T::Constants       gamma1, gamma2 of constants.hpp
//   T::mul_xi(a)       xi * a for a in Fq2
//
// Costs are given in Fq2 multiplications (M) and squarings (S). Sources:
//   [DOSD]  Devegili, O hEigeartaigh, Scott, Dahab: Multiplication and squaring on pairing-friendly fields,
//           eprint 2006/471
//   [CH]    Chung, Hasan: Asymmetric squaring formulae, ARITH 2007
//   [GS]    Granger, Scott: Faster squaring in the cyclotomic subgroup of sixth degree extensions, PKC 2010
//   [BDMOT] Beuchat, Gonzalez-Diaz, Mitsunari, Okamoto, Rodriguez-Henriquez, Teruya: High-speed software implementation
//           of the optimal ate pairing over Barreto-Naehrig curves, Pairing 2010
#pragma once
#include <string.h>

#include "../ff/fp2.hpp"

namespace cuzk {
namespace CUZK_PATH {

// Field element from Montgomery limbs of constants.hpp.
template <class F, class Limbs>
inline F from_limbs(const Limbs &limbs) {
  static_assert(sizeof(F) == sizeof(Limbs), "limbs of another field");
  F f;
  memcpy(&f, &limbs, sizeof f);
  return f;
}

template <class T>
struct Fq6 {
  using F2 = typename T::Fq2;
  F2 c0, c1, c2;

  static Fq6 zero() { return {F2::zero(), F2::zero(), F2::zero()}; }
  static Fq6 one() { return {F2::one(), F2::zero(), F2::zero()}; }

  friend Fq6 operator+(const Fq6 &a, const Fq6 &b) { return {a.c0 + b.c0, a.c1 + b.c1, a.c2 + b.c2}; }
  friend Fq6 operator-(const Fq6 &a, const Fq6 &b) { return {a.c0 - b.c0, a.c1 - b.c1, a.c2 - b.c2}; }
  Fq6 operator-() const { return {-c0, -c1, -c2}; }
  bool operator==(const Fq6 &b) const { return c0 == b.c0 && c1 == b.c1 && c2 == b.c2; }

  // Karatsuba, 6 M [DOSD].
  friend Fq6 operator*(const Fq6 &a, const Fq6 &b) {
    const F2 v0 = a.c0 * b.c0, v1 = a.c1 * b.c1, v2 = a.c2 * b.c2;
    return {v0 + T::mul_xi((a.c1 + a.c2) * (b.c1 + b.c2) - v1 - v2),
            (a.c0 + a.c1) * (b.c0 + b.c1) - v0 - v1 + T::mul_xi(v2),
            (a.c0 + a.c2) * (b.c0 + b.c2) - v0 - v2 + v1};
  }

  // times b0 + b1 v, 5 M.
  Fq6 mul_01(const F2 &b0, const F2 &b1) const {
    const F2 v0 = c0 * b0, v1 = c1 * b1;
    return {v0 + T::mul_xi((c1 + c2) * b1 - v1), (c0 + c1) * (b0 + b1) - v0 - v1, (c0 + c2) * b0 - v0 + v1};
  }
  // times b1 v, 3 M.
  Fq6 mul_1(const F2 &b1) const { return {T::mul_xi(c2 * b1), c0 * b1, c1 * b1}; }
  // times b0 in Fq2, 3 M.
  Fq6 mul_0(const F2 &b0) const { return {c0 * b0, c1 * b0, c2 * b0}; }
  Fq6 mul_v() const { return {T::mul_xi(c2), c0, c1}; }

  // CH-SQR2, 2 M + 3 S [CH].
  Fq6 sqr() const {
    const F2 s0 = c0.sqr(), s1 = (c0 * c1).dbl(), s2 = (c0 - c1 + c2).sqr(), s3 = (c1 * c2).dbl(), s4 = c2.sqr();
    return {s0 + T::mul_xi(s3), s1 + T::mul_xi(s4), s1 + s2 + s3 - s0 - s4};
  }

  // By the adjoint matrix, one inversion in Fq2; of zero: zero.
  Fq6 inverse() const {
    const F2 a = c0.sqr() - T::mul_xi(c1 * c2), b = T::mul_xi(c2.sqr()) - c0 * c1, c = c1.sqr() - c0 * c2;
    const F2 norm = c0 * a + T::mul_xi(c2 * b + c1 * c);
    return Fq6{a, b, c}.mul_0(norm.inverse());
  }
};

template <class T>
struct Fq12 {
  using F = typename T::Fq;
  using F2 = typename T::Fq2;
  using F6 = Fq6<T>;
  F6 c0, c1;

  static Fq12 one() { return {F6::one(), F6::zero()}; }

  // 12 coefficients in plain form: those of 1, v, v^2, w, v w, v^2 w in Fq2.
  void store_plain(void *out) const {
    char *p = static_cast<char *>(out);
    const F2 *const coefficients[] = {&c0.c0, &c0.c1, &c0.c2, &c1.c0, &c1.c1, &c1.c2};
    for (const F2 *c : coefficients) {
      c->from_mont().store(p);
      p += F2::bytes;
    }
  }

  bool operator==(const Fq12 &b) const { return c0 == b.c0 && c1 == b.c1; }

  // Karatsuba, 18 M.
  friend Fq12 operator*(const Fq12 &a, const Fq12 &b) {
    const F6 v0 = a.c0 * b.c0, v1 = a.c1 * b.c1;
    return {v0 + v1.mul_v(), (a.c0 + a.c1) * (b.c0 + b.c1) - v0 - v1};
  }

  // Complex squaring, 12 M [DOSD].
  Fq12 sqr() const {
    const F6 ab = c0 * c1;
    return {(c0 + c1) * (c0 + c1.mul_v()) - ab - ab.mul_v(), ab + ab};
  }

  // The power of q^6: inverse in the cyclotomic subgroup.
  Fq12 conjugate() const { return {c0, -c1}; }

  Fq12 inverse() const {
    const F6 norm = (c0.sqr() - c1.sqr().mul_v()).inverse();
    return {c0 * norm, -(c1 * norm)};
  }

  // times b0 + b3 w + b4 v w, the line of a D-type twist, 13 M.
  Fq12 mul_034(const F2 &b0, const F2 &b3, const F2 &b4) const {
    const F6 v0 = c0.mul_0(b0), v1 = c1.mul_01(b3, b4);
    return {v0 + v1.mul_v(), (c0 + c1).mul_01(b0 + b3, b4) - v0 - v1};
  }
  // times b0 + b1 v + b4 v w, the line of an M-type twist, 13 M.
  Fq12 mul_014(const F2 &b0, const F2 &b1, const F2 &b4) const {
    const F6 v0 = c0.mul_01(b0, b1), v1 = c1.mul_1(b4);
    return {v0 + v1.mul_v(), (c0 + c1).mul_01(b0, b1 + b4) - v0 - v1};
  }

  // The power of q: coefficient i of w is conjugated and multiplied by xi^(i (q - 1) / 6).
  Fq12 frobenius1() const {
    const auto &g = T::Constants::gamma1;
    return {{c0.c0.conjugate(), c0.c1.conjugate() * from_limbs<F2>(g[1]), c0.c2.conjugate() * from_limbs<F2>(g[3])},
            {c1.c0.conjugate() * from_limbs<F2>(g[0]), c1.c1.conjugate() * from_limbs<F2>(g[2]),
             c1.c2.conjugate() * from_limbs<F2>(g[4])}};
  }
  // The power of q^2.
  Fq12 frobenius2() const {
    const auto &g = T::Constants::gamma2;
    return {{c0.c0, c0.c1 * from_limbs<F>(g[1]), c0.c2 * from_limbs<F>(g[3])},
            {c1.c0 * from_limbs<F>(g[0]), c1.c1 * from_limbs<F>(g[2]),
             c1.c2 * from_limbs<F>(g[4])}};
  }
  // The power of q^3.
  Fq12 frobenius3() const { return frobenius2().frobenius1(); }

  // Squaring where this^(q^4 - q^2 + 1) = 1, 9 S: three squarings in Fq4 = Fq2[t]/(t^2 - xi) [GS].
  Fq12 cyclotomic_sqr() const {
    F2 a0, a1, b0, b1, d0, d1;
    fq4_sqr(c0.c0, c1.c1, a0, a1);
    fq4_sqr(c1.c0, c0.c2, b0, b1);
    fq4_sqr(c0.c1, c1.c2, d0, d1);
    d1 = T::mul_xi(d1);
    return {{minus(a0, c0.c0), minus(b0, c0.c1), minus(d0, c0.c2)},
            {plus(d1, c1.c0), plus(a1, c1.c1), plus(b1, c1.c2)}};
  }

 private:
  // (a + b t)^2 = r0 + r1 t [BDMOT].
  static void fq4_sqr(const F2 &a, const F2 &b, F2 &r0, F2 &r1) {
    const F2 s = a.sqr(), t = b.sqr();
    r1 = (a + b).sqr() - s - t;
    r0 = T::mul_xi(t) + s;
  }
  static F2 minus(const F2 &s, const F2 &z) { return (s - z).dbl() + s; }  // 3 s - 2 z
  static F2 plus(const F2 &s, const F2 &z) { return (s + z).dbl() + s; }   // 3 s + 2 z
};

}  // namespace CUZK_PATH
}  // namespace cuzk
