// A prime field in Montgomery form.
//
// The field concept that ec/, ntt/ and msm/ are written over (Fp, Fp2 and, on a GPU, its own type):
//   F::zero(), F::one(), a + b, a - b, a * b, -a, a == b, a.sqr(), a.dbl(), a.is_zero(), a.inverse() (0 gives 0)
#pragma once
#ifdef CUZK_TARGET_CUDA
#include "fp_cuda.hpp"
#else
#include <string.h>

#include "inverse.hpp"
#include "limbs_portable.hpp"
#ifdef CUZK_PATH_ADX
#include "limbs_adx.hpp"
#endif

namespace cuzk {
namespace CUZK_PATH {

template <class Params>
class Fp {
 public:
  using P = Params;
#ifdef CUZK_PATH_ADX
  using Arithmetic = LimbsAdx<P>;
#else
  using Arithmetic = LimbsPortable<P>;
#endif
  static constexpr int N = P::limbs;
  static constexpr size_t bytes = 8 * N;
  static constexpr int bits = Montgomery<P>::bits;

  uint64_t v[N];  // x * 2^(64 N) mod p, in [0, p)

  static CUZK_INLINE Fp zero() {
    Fp r;
    for (int i = 0; i < N; i++) r.v[i] = 0;
    return r;
  }
  static CUZK_INLINE Fp one() { return raw(Montgomery<P>::one); }
  static CUZK_INLINE Fp raw(const Limbs<N> &limbs) {  // the limbs as they are
    Fp r;
    for (int i = 0; i < N; i++) r.v[i] = limbs.v[i];
    return r;
  }
  static Fp from_u64(uint64_t x) {
    Fp r = zero();
    r.v[0] = x;
    return r.to_mont();
  }
  static CUZK_INLINE Fp load(const void *p) {  // any alignment
    Fp r;
    memcpy(r.v, p, bytes);
    return r;
  }
  CUZK_INLINE void store(void *p) const { memcpy(p, v, bytes); }

  // Whether the limbs, in either form, are below the modulus.
  CUZK_INLINE bool is_reduced() const {
    uint64_t borrow = 0;
    for (int i = 0; i < N; i++) {
      const uint128_t d = (uint128_t)v[i] - P::modulus[i] - borrow;
      borrow = (uint64_t)(d >> 64) & 1;
    }
    return borrow != 0;
  }
  CUZK_INLINE bool is_zero() const {
    uint64_t x = 0;
    for (int i = 0; i < N; i++) x |= v[i];
    return x == 0;
  }
  CUZK_INLINE bool operator==(const Fp &b) const {
    uint64_t x = 0;
    for (int i = 0; i < N; i++) x |= v[i] ^ b.v[i];
    return x == 0;
  }
  CUZK_INLINE bool operator!=(const Fp &b) const { return !(*this == b); }

  CUZK_INLINE Fp operator+(const Fp &b) const {
    Fp r;
    Arithmetic::add(r.v, v, b.v);
    return r;
  }
  CUZK_INLINE Fp operator-(const Fp &b) const {
    Fp r;
    Arithmetic::sub(r.v, v, b.v);
    return r;
  }
  CUZK_INLINE Fp operator*(const Fp &b) const {
    Fp r;
    Arithmetic::mul(r.v, v, b.v);
    return r;
  }
  CUZK_INLINE Fp &operator+=(const Fp &b) { return *this = *this + b; }
  CUZK_INLINE Fp &operator-=(const Fp &b) { return *this = *this - b; }
  CUZK_INLINE Fp &operator*=(const Fp &b) { return *this = *this * b; }
  CUZK_INLINE Fp operator-() const { return zero() - *this; }
  // -this or this, without a branch.
  CUZK_INLINE Fp negated_if(bool negative) const {
    const Fp minus = zero() - *this;
    const uint64_t mask = 0 - static_cast<uint64_t>(negative);
    Fp r;
    for (int i = 0; i < N; i++) r.v[i] = v[i] ^ ((v[i] ^ minus.v[i]) & mask);
    return r;
  }
  CUZK_INLINE Fp dbl() const { return *this + *this; }
  CUZK_INLINE Fp sqr() const { return *this * *this; }

  CUZK_INLINE Fp to_mont() const { return *this * raw(Montgomery<P>::r2); }  // from plain limbs
  CUZK_INLINE Fp from_mont() const {                                        // to plain limbs
    Fp unit = zero();
    unit.v[0] = 1;
    return *this * unit;
  }

  // this^e for e of n limbs, least significant first.
  Fp pow(const uint64_t *e, int n) const {
    Fp r = one();
    for (int i = 64 * n - 1; i >= 0; i--) {
      r = r.sqr();
      if (e[i / 64] >> (i % 64) & 1) r = r * *this;
    }
    return r;
  }

  // The limbs' inverse x^-1 R^-1 of x R, times R^2 to restore the radix.
  Fp inverse() const {
    if (is_zero()) return *this;
    Fp r;
    BinaryInversion<P>::invert(r.v, v);
    return r * raw(Montgomery<P>::r3);
  }
};

using Bn254Fq = Fp<Bn254FqParams>;
using Bn254Fr = Fp<Bn254FrParams>;
using Bls12_381Fq = Fp<Bls12_381FqParams>;
using Bls12_381Fr = Fp<Bls12_381FrParams>;

}  // namespace CUZK_PATH
}  // namespace cuzk

#endif
