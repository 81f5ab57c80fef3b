// Points of y^2 = x^3 + b (a = 0: both curves, both groups) over a field F of the concept in ff/fp.hpp.
//
// Formulas: explicit-formulas database, short Weierstrass, XYZZ coordinates with a = 0 (add-2008-s, madd-2008-s,
// dbl-2008-s-1, mdbl-2008-s-1). All functions are exact for every input: equal, opposite and infinite operands
// included.
#pragma once
#include "../ff/config.hpp"

namespace cuzk {
namespace CUZK_PATH {

// a b - c d; a field that can do that with one reduction has an overload of its own.
template <class F>
CUZK_HD CUZK_INLINE F product_difference(const F &a, const F &b, const F &c, const F &d) {
  return a * b - c * d;
}

// x, y in Montgomery form; (0, 0), which lies on none of the curves, is the point at infinity.
template <class F>
struct Affine {
  F x, y;

  static CUZK_HD CUZK_INLINE Affine infinity() { return {F::zero(), F::zero()}; }
  static CUZK_INLINE Affine load(const void *p) {
    return {F::load(p), F::load(static_cast<const char *>(p) + F::bytes)};
  }
  CUZK_INLINE void store(void *p) const {
    x.store(p);
    y.store(static_cast<char *>(p) + F::bytes);
  }
  CUZK_HD CUZK_INLINE bool is_infinity() const {
    // Both are asked: a field may take several threads to answer.
    const bool x_is_zero = x.is_zero(), y_is_zero = y.is_zero();
    return x_is_zero && y_is_zero;
  }
  CUZK_HD CUZK_INLINE Affine operator-() const { return {x, -y}; }
  CUZK_HD CUZK_INLINE bool operator==(const Affine &b) const { return x == b.x && y == b.y; }
  CUZK_HD CUZK_INLINE bool on_curve(const F &b) const { return is_infinity() || y.sqr() == x.sqr() * x + b; }
};

// The affine point (x/zz, y/zzz) with zz^3 = zzz^2; infinity has zz = 0.
template <class F>
struct Xyzz {
  F x, y, zz, zzz;

  static CUZK_HD CUZK_INLINE Xyzz infinity() { return {F::zero(), F::zero(), F::zero(), F::zero()}; }
  static CUZK_HD CUZK_INLINE Xyzz from(const Affine<F> &p) {
    if (p.is_infinity()) return infinity();
    return {p.x, p.y, F::one(), F::one()};
  }
  CUZK_HD CUZK_INLINE bool is_infinity() const { return zz.is_zero(); }
  CUZK_HD CUZK_INLINE Xyzz operator-() const { return {x, -y, zz, zzz}; }

  CUZK_HD Xyzz dbl() const {  // 6M + 3S; y = 0 gives zz = 0, infinity
    const F u = y.dbl();
    const F v = u.sqr();
    const F w = u * v;
    const F s = x * v;
    const F xx = x.sqr();
    const F m = xx.dbl() + xx;
    const F x3 = m.sqr() - s.dbl();
    return {x3, product_difference(m, s - x3, w, y), v * zz, w * zzz};
  }

  static CUZK_HD Xyzz dbl(const Affine<F> &p) {
    if (p.is_infinity()) return infinity();
    const F u = p.y.dbl();
    const F v = u.sqr();
    const F w = u * v;
    const F s = p.x * v;
    const F xx = p.x.sqr();
    const F m = xx.dbl() + xx;
    const F x3 = m.sqr() - s.dbl();
    return {x3, product_difference(m, s - x3, w, p.y), v, w};
  }

  CUZK_HD void add(const Affine<F> &b) {  // 8M + 2S
    if (b.is_infinity()) return;
    if (is_infinity()) {
      *this = from(b);
      return;
    }
    const F p = b.x * zz - x;
    const F r = b.y * zzz - y;
    if (p.is_zero()) {
      *this = r.is_zero() ? dbl(b) : infinity();
      return;
    }
    const F pp = p.sqr();
    const F ppp = p * pp;
    const F q = x * pp;
    const F x3 = r.sqr() - ppp - q.dbl();
    y = product_difference(r, q - x3, y, ppp);
    x = x3;
    zz = zz * pp;
    zzz = zzz * ppp;
  }

  CUZK_HD void add(const Xyzz &b) {  // 12M + 2S
    if (b.is_infinity()) return;
    if (is_infinity()) {
      *this = b;
      return;
    }
    const F u1 = x * b.zz;
    const F s1 = y * b.zzz;
    const F p = b.x * zz - u1;
    const F r = b.y * zzz - s1;
    if (p.is_zero()) {
      *this = r.is_zero() ? b.dbl() : infinity();
      return;
    }
    const F pp = p.sqr();
    const F ppp = p * pp;
    const F q = u1 * pp;
    const F x3 = r.sqr() - ppp - q.dbl();
    y = product_difference(r, q - x3, s1, ppp);
    x = x3;
    zz = zz * b.zz * pp;
    zzz = zzz * b.zzz * ppp;
  }

  Affine<F> to_affine() const {
    if (is_infinity()) return Affine<F>::infinity();
    // 1/zz = zz^2 / zzz^2, since zz^3 = zzz^2.
    const F i = zzz.inverse();
    return {x * (zz * i).sqr(), y * i};
  }
};

// k * p by double-and-add, for k of n limbs, least significant first.
template <class F>
Xyzz<F> multiply(const Affine<F> &p, const uint64_t *k, int n) {
  Xyzz<F> r = Xyzz<F>::infinity();
  int i = 64 * n - 1;
  while (i >= 0 && !(k[i / 64] >> (i % 64) & 1)) i--;
  for (; i >= 0; i--) {
    r = r.dbl();
    if (k[i / 64] >> (i % 64) & 1) r.add(p);
  }
  return r;
}

}  // namespace CUZK_PATH
}  // namespace cuzk
