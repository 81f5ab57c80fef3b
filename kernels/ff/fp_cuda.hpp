// The prime field of fp.hpp on 32-bit limbs, for the device; the same concept, the same values in memory.
//
// Objects are 16-byte aligned, so that a warp moves them in the widest loads the device has.
#pragma once
#include "columns_cuda.hpp"
#include "inverse_cuda.hpp"

// The hot kernels inline multiplications; long ones that run seldom set this to __noinline__, which compiles several
// times as fast.
#ifndef CUZK_MUL_INLINE
#ifdef CUZK_SHORT_LATENCY
#define CUZK_MUL_INLINE __noinline__
#else
#define CUZK_MUL_INLINE CUZK_INLINE
#endif
#endif

namespace cuzk {
namespace CUZK_PATH {

struct alignas(16) Quad {
  uint32_t x, y, z, w;
};

// CUZK_SHORT_LATENCY: for kernels that few warps run; see columns_cuda.hpp.
#ifdef CUZK_SHORT_LATENCY
template <class P>
struct FieldProducts : LimbsCuda<P> {
  using Columns = ColumnsCuda<P>;
  static CUZK_INLINE void mul(uint32_t *r, const uint32_t *a, const uint32_t *b) { Columns::mul(r, a, b); }
  static CUZK_INLINE void sqr(uint32_t *r, const uint32_t *a) { Columns::mul(r, a, a); }
  static CUZK_INLINE void dot(uint32_t *r, const uint32_t *a, const uint32_t *b, const uint32_t *c, const uint32_t *d) {
    Columns::dot(r, a, b, c, d);
  }
};
#else
template <class P>
using FieldProducts = LimbsCuda<P>;
#endif

template <class Params>
class alignas(16) Fp {
 public:
  using P = Params;
  using Arithmetic = FieldProducts<P>;
  using F = Fp;
  static constexpr int N = Arithmetic::N;
  static constexpr size_t bytes = 4 * N;
  static constexpr int bits = Montgomery<P>::bits;
  static constexpr int lanes = 1;  // threads that hold one element
  static CUZK_INLINE size_t component_offset() { return 0; }  // of what this thread holds
  static CUZK_INLINE Fp of_component(const Fp &c) { return c; }
  CUZK_INLINE Fp component() const { return *this; }
  static CUZK_INLINE bool any(bool x) { return x; }  // of the threads that must branch together

  uint32_t v[N];

  static CUZK_INLINE Fp zero() {
    Fp r;
CUZK_UNROLL
    for (int i = 0; i < N; i++) r.v[i] = 0;
    return r;
  }
  static CUZK_INLINE Fp one() { return raw(Montgomery<P>::one); }
  static CUZK_INLINE Fp raw(const Limbs<P::limbs> &limbs) {  // the limbs as they are
    Fp r;
CUZK_UNROLL
    for (int i = 0; i < N; i++) r.v[i] = (uint32_t)(limbs.v[i / 2] >> (32 * (i % 2)));
    return r;
  }
  static CUZK_INLINE Fp from_u64(uint64_t x) {
    Fp r = zero();
    r.v[0] = (uint32_t)x;
    r.v[1] = (uint32_t)(x >> 32);
    return r.to_mont();
  }
  static CUZK_INLINE Fp load(const void *p) {  // 16-byte aligned
    Fp r;
    const Quad *q = static_cast<const Quad *>(p);
CUZK_UNROLL
    for (int i = 0; i < N / 4; i++) {
      const Quad k = q[i];
      r.v[4 * i] = k.x, r.v[4 * i + 1] = k.y, r.v[4 * i + 2] = k.z, r.v[4 * i + 3] = k.w;
    }
    return r;
  }
  static CUZK_INLINE Fp load_words(const void *p) {  // 4-byte aligned
    Fp r;
CUZK_UNROLL
    for (int i = 0; i < N; i++) r.v[i] = static_cast<const uint32_t *>(p)[i];
    return r;
  }
  CUZK_INLINE void store(void *p) const {
    Quad *q = static_cast<Quad *>(p);
CUZK_UNROLL
    for (int i = 0; i < N / 4; i++) q[i] = Quad{v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]};
  }

  CUZK_INLINE bool is_reduced() const {
    carry::sub_cc(v[0], Arithmetic::p(0));
CUZK_UNROLL
    for (int i = 1; i < N; i++) carry::subc_cc(v[i], Arithmetic::p(i));
    return carry::subc(0, 0) != 0;
  }
  CUZK_INLINE bool is_zero() const {
    uint32_t x = 0;
CUZK_UNROLL
    for (int i = 0; i < N; i++) x |= v[i];
    return x == 0;
  }
  CUZK_INLINE bool operator==(const Fp &b) const {
    uint32_t x = 0;
CUZK_UNROLL
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
  CUZK_MUL_INLINE Fp operator*(const Fp &b) const {
    Fp r;
    Arithmetic::mul(r.v, v, b.v);
    return r;
  }
  CUZK_INLINE Fp &operator+=(const Fp &b) { return *this = *this + b; }
  CUZK_INLINE Fp &operator-=(const Fp &b) { return *this = *this - b; }
  CUZK_INLINE Fp &operator*=(const Fp &b) { return *this = *this * b; }
  CUZK_INLINE Fp operator-() const { return zero() - *this; }
  CUZK_INLINE Fp dbl() const { return *this + *this; }
  CUZK_MUL_INLINE Fp sqr() const {
    Fp r;
    Arithmetic::sqr(r.v, v);
    return r;
  }

  CUZK_INLINE Fp to_mont() const { return *this * raw(Montgomery<P>::r2); }  // from plain limbs
  CUZK_INLINE Fp from_mont() const {                                        // to plain limbs
    Fp unit = zero();
    unit.v[0] = 1;
    return *this * unit;
  }

  // a or b; limb by limb, so that neither needs an address.
  static CUZK_INLINE Fp select(bool first, const Fp &a, const Fp &b) {
    Fp r;
CUZK_UNROLL
    for (int i = 0; i < N; i++) r.v[i] = first ? a.v[i] : b.v[i];
    return r;
  }

  // this^e for e of n 64-bit limbs, least significant first.
  CUZK_INLINE Fp pow(const uint64_t *e, int n) const {
    Fp r = one();
    for (int i = 64 * n - 1; i >= 0; i--) {
      r = r.sqr();
      if (e[i / 64] >> (i % 64) & 1) r = r * *this;
    }
    return r;
  }

  // 0 gives 0.
  CUZK_INLINE Fp inverse() const {
    Fp r;
    BinaryInversionCuda<P>::invert(r.v, v);
    return r * raw(Montgomery<P>::r3);  // the limbs are those of this * R
  }
};

template <class P>
CUZK_MUL_INLINE Fp<P> product_difference(const Fp<P> &a, const Fp<P> &b, const Fp<P> &c, const Fp<P> &d) {
  const Fp<P> e = -c;
  Fp<P> r;
  Fp<P>::Arithmetic::dot(r.v, a.v, b.v, e.v, d.v);
  return r;
}

using Bn254Fq = Fp<Bn254FqParams>;
using Bn254Fr = Fp<Bn254FrParams>;
using Bls12_381Fq = Fp<Bls12_381FqParams>;
using Bls12_381Fr = Fp<Bls12_381FrParams>;

}  // namespace CUZK_PATH
}  // namespace cuzk
