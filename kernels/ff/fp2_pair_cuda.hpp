// Fq2 = Fq[u] / (u^2 + 1) spread over two neighbouring threads: the even one holds c0, the odd one c1.
//
// A point of G2 then takes as many registers a thread as one of G1. Both threads of a pair take the same branches,
// because every predicate is one of the whole element.
//
// With `converged`, all 32 threads of a warp must come to every operation together; otherwise only the pair. The
// exchange of a pair alone costs several instructions a word, so hot code keeps its warps together
// (ec/converged_cuda.hpp).
#pragma once
#include "fp_cuda.hpp"

namespace cuzk {
namespace CUZK_PATH {

template <class Base, bool converged = false>
class alignas(16) Fp2Pair {
 public:
  using F = Base;
  static constexpr size_t bytes = 2 * F::bytes;
  static constexpr int lanes = 2;

  F c;  // this thread's component

  static CUZK_INLINE bool odd() { return threadIdx.x & 1; }
  static CUZK_INLINE unsigned mask() { return converged ? 0xffffffffu : 3u << (threadIdx.x & 30); }
  CUZK_INLINE F other() const {
    F r;
CUZK_UNROLL
    for (int i = 0; i < F::N; i++) r.v[i] = __shfl_xor_sync(mask(), c.v[i], 1);
    return r;
  }
  static CUZK_INLINE size_t component_offset() { return odd() ? F::bytes : 0; }
  static CUZK_INLINE Fp2Pair of_component(const F &c) { return {c}; }
  CUZK_INLINE F component() const { return c; }
  static CUZK_INLINE bool any(bool x) { return __any_sync(mask(), x); }
  static CUZK_INLINE Fp2Pair select(bool first, const Fp2Pair &a, const Fp2Pair &b) {
    return {F::select(first, a.c, b.c)};
  }
  static CUZK_INLINE bool both(bool x) { return __shfl_xor_sync(mask(), (int)x, 1) && x; }

  static CUZK_INLINE Fp2Pair zero() { return {F::zero()}; }
  static CUZK_INLINE Fp2Pair one() {
    Fp2Pair r{F::one()};
    if (odd()) r.c = F::zero();
    return r;
  }
  static CUZK_INLINE Fp2Pair load(const void *p) {
    return {F::load(static_cast<const char *>(p) + component_offset())};
  }
  CUZK_INLINE void store(void *p) const { c.store(static_cast<char *>(p) + component_offset()); }

  CUZK_INLINE bool is_reduced() const { return both(c.is_reduced()); }
  CUZK_INLINE bool is_zero() const { return both(c.is_zero()); }
  CUZK_INLINE bool operator==(const Fp2Pair &b) const { return both(c == b.c); }
  CUZK_INLINE bool operator!=(const Fp2Pair &b) const { return !(*this == b); }

  CUZK_INLINE Fp2Pair operator+(const Fp2Pair &b) const { return {c + b.c}; }
  CUZK_INLINE Fp2Pair operator-(const Fp2Pair &b) const { return {c - b.c}; }
  CUZK_INLINE Fp2Pair operator-() const { return {-c}; }
  CUZK_INLINE Fp2Pair dbl() const { return {c.dbl()}; }

  // c0 = a0 b0 - a1 b1 and c1 = a1 b0 + a0 b1, each with one reduction.
  CUZK_MUL_INLINE Fp2Pair operator*(const Fp2Pair &b) const {
    const F x = other(), y = b.other();
    const F p = F::select(odd(), y, b.c), r = F::select(odd(), b.c, y), q = F::select(odd(), x, -x);
    Fp2Pair out;
    F::Arithmetic::dot(out.c.v, c.v, p.v, q.v, r.v);
    return out;
  }
  // c0 = (a0 + a1) (a0 - a1), c1 = 2 a1 a0.
  CUZK_MUL_INLINE Fp2Pair sqr() const {
    const F x = other();
    const F left = c + F::select(odd(), c, x), right = F::select(odd(), x, c - x);
    return {left * right};
  }
  CUZK_INLINE Fp2Pair inverse() const {
    const F own = c.sqr();
    const F d = (own + Fp2Pair{own}.other()).inverse();
    const F r = c * d;
    return {F::select(odd(), -r, r)};
  }
};

}  // namespace CUZK_PATH
}  // namespace cuzk
