// The quadratic extension Fq[u] / (u^2 + 1), the one of both curves.
#pragma once
#include "fp.hpp"

namespace cuzk {
namespace CUZK_PATH {

template <class Base>
class Fp2 {
 public:
  using F = Base;
  static constexpr size_t bytes = 2 * F::bytes;

  F c0, c1;  // c0 + c1 u

  static CUZK_INLINE Fp2 zero() { return {F::zero(), F::zero()}; }
  static CUZK_INLINE Fp2 one() { return {F::one(), F::zero()}; }
  static CUZK_INLINE Fp2 load(const void *p) {
    return {F::load(p), F::load(static_cast<const char *>(p) + F::bytes)};
  }
  CUZK_INLINE void store(void *p) const {
    c0.store(p);
    c1.store(static_cast<char *>(p) + F::bytes);
  }

  CUZK_INLINE bool is_reduced() const { return c0.is_reduced() && c1.is_reduced(); }
  CUZK_INLINE bool is_zero() const { return c0.is_zero() && c1.is_zero(); }
  CUZK_INLINE bool operator==(const Fp2 &b) const { return c0 == b.c0 && c1 == b.c1; }
  CUZK_INLINE bool operator!=(const Fp2 &b) const { return !(*this == b); }

  CUZK_INLINE Fp2 operator+(const Fp2 &b) const { return {c0 + b.c0, c1 + b.c1}; }
  CUZK_INLINE Fp2 operator-(const Fp2 &b) const { return {c0 - b.c0, c1 - b.c1}; }
  Fp2 operator*(const Fp2 &b) const {  // Karatsuba
    const F x = c0 * b.c0, y = c1 * b.c1, z = (c0 + c1) * (b.c0 + b.c1);
    return {x - y, z - x - y};
  }
  CUZK_INLINE Fp2 operator*(const F &k) const { return {c0 * k, c1 * k}; }
  CUZK_INLINE Fp2 &operator+=(const Fp2 &b) { return *this = *this + b; }
  CUZK_INLINE Fp2 &operator-=(const Fp2 &b) { return *this = *this - b; }
  CUZK_INLINE Fp2 &operator*=(const Fp2 &b) { return *this = *this * b; }
  CUZK_INLINE Fp2 operator-() const { return {-c0, -c1}; }
  CUZK_INLINE Fp2 negated_if(bool negative) const { return {c0.negated_if(negative), c1.negated_if(negative)}; }
  CUZK_INLINE Fp2 dbl() const { return {c0.dbl(), c1.dbl()}; }
  Fp2 sqr() const {
    const F t = c0 * c1;
    return {(c0 + c1) * (c0 - c1), t.dbl()};
  }
  CUZK_INLINE Fp2 conjugate() const { return {c0, -c1}; }
  CUZK_INLINE F norm() const { return c0.sqr() + c1.sqr(); }
  CUZK_INLINE Fp2 to_mont() const { return {c0.to_mont(), c1.to_mont()}; }
  CUZK_INLINE Fp2 from_mont() const { return {c0.from_mont(), c1.from_mont()}; }

  Fp2 pow(const uint64_t *e, int n) const {
    Fp2 r = one();
    for (int i = 64 * n - 1; i >= 0; i--) {
      r = r.sqr();
      if (e[i / 64] >> (i % 64) & 1) r = r * *this;
    }
    return r;
  }
  Fp2 inverse() const {
    const F d = norm().inverse();
    return {c0 * d, -(c1 * d)};
  }
};

using Bn254Fq2 = Fp2<Bn254Fq>;
using Bls12_381Fq2 = Fp2<Bls12_381Fq>;

}  // namespace CUZK_PATH
}  // namespace cuzk
