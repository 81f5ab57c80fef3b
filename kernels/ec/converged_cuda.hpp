// Additions that all threads of a warp make together, whatever their operands: exceptional cases are selected, not
// branched to.
//
// Same formulas and same results as point.hpp. `active` false leaves the sum as it is. Predicates of field elements
// are taken before they are combined: a skipped operand of && would be an operation that only some threads come to.
#pragma once
#include "../ff/fp2_pair_cuda.hpp"
#include "point.hpp"

namespace cuzk {
namespace CUZK_PATH {

static CUZK_INLINE bool any_of_warp(bool x) { return __any_sync(0xffffffffu, x); }
static CUZK_INLINE uint32_t most_of_warp(uint32_t x) {
  for (int d = 16; d; d /= 2) {
    const uint32_t y = __shfl_xor_sync(0xffffffffu, x, d);
    x = x > y ? x : y;
  }
  return x;
}

template <class F>
CUZK_INLINE Xyzz<F> select(bool first, const Xyzz<F> &a, const Xyzz<F> &b) {
  return {F::select(first, a.x, b.x), F::select(first, a.y, b.y), F::select(first, a.zz, b.zz),
          F::select(first, a.zzz, b.zzz)};
}

template <class F>
CUZK_INLINE void add_converged(Xyzz<F> &s, const Affine<F> &b, bool active) {
  const bool infinite = b.is_infinity(), fresh = s.is_infinity(), keep = infinite || !active;
  const F p = b.x * s.zz - s.x;
  const F r = b.y * s.zzz - s.y;
  const bool same_x = p.is_zero(), same_y = r.is_zero();
  const bool again = same_x && same_y && !keep && !fresh;
  const F pp = p.sqr();
  const F ppp = p * pp;
  F zz = F::select(fresh, F::one(), s.zz * pp);
  F zzz = F::select(fresh, F::one(), s.zzz * ppp);
  const F q = s.x * pp;
  F x = F::select(fresh, b.x, r.sqr() - ppp - q.dbl());
  F y = F::select(fresh, b.y, product_difference(r, q - x, s.y, ppp));
  if (any_of_warp(again)) {
    const F u = b.y.dbl(), v = u.sqr(), w = u * v, t = b.x * v, xx = b.x.sqr(), m = xx.dbl() + xx;
    const F x2 = m.sqr() - t.dbl();
    const F y2 = product_difference(m, t - x2, w, b.y);
    x = F::select(again, x2, x);
    y = F::select(again, y2, y);
    zz = F::select(again, v, zz);
    zzz = F::select(again, w, zzz);
  }
  s.x = F::select(keep, s.x, x);
  s.y = F::select(keep, s.y, y);
  s.zz = F::select(keep, s.zz, zz);
  s.zzz = F::select(keep, s.zzz, zzz);
}

template <class F>
CUZK_INLINE void add_converged(Xyzz<F> &s, const Xyzz<F> &b, bool active) {
  const bool infinite = b.is_infinity(), fresh = s.is_infinity(), keep = infinite || !active;
  const F u1 = s.x * b.zz;
  const F s1 = s.y * b.zzz;
  const F p = b.x * s.zz - u1;
  const F r = b.y * s.zzz - s1;
  const bool same_x = p.is_zero(), same_y = r.is_zero();
  const bool again = same_x && same_y && !keep && !fresh;
  const F pp = p.sqr();
  const F ppp = p * pp;
  const F q = u1 * pp;
  const F x = r.sqr() - ppp - q.dbl();
  Xyzz<F> sum{x, product_difference(r, q - x, s1, ppp), s.zz * b.zz * pp, s.zzz * b.zzz * ppp};
  if (any_of_warp(again)) sum = select(again, b.dbl(), sum);
  sum = select(fresh, b, sum);
  s = select(keep, s, sum);
}

// ---- one sum held by the four threads (or pairs) of a team, a product each: the chain of doublings at the end of an
// MSM ----

// The value that member `member` of this thread's team holds.
template <class F>
CUZK_INLINE F of_member(const F &x, int member) {
  constexpr int words = sizeof(F) / 4;
  const int team = (int)(threadIdx.x & 31 & ~(4u * F::lanes - 1)), lane = (int)(threadIdx.x & (F::lanes - 1));
  const int source = team + member * F::lanes + lane;
  F r;
  const uint32_t *from = reinterpret_cast<const uint32_t *>(&x);
  uint32_t *to = reinterpret_cast<uint32_t *>(&r);
CUZK_UNROLL
  for (int i = 0; i < words; i++) to[i] = __shfl_sync(0xffffffffu, from[i], source);
  return r;
}

// dbl-2008-s-1 in three steps. Every member holds the same sum before and after.
template <class F>
CUZK_INLINE void double_by_team(Xyzz<F> &s) {
  const int member = (int)(threadIdx.x / F::lanes) & 3;
  const F u = s.y.dbl();
  F product = F::select(member == 0, u, s.x).sqr();
  const F v = of_member(product, 0), xx = of_member(product, 1), m = xx.dbl() + xx;
  // w = u v, t = x v, m m, zz v
  const F left = F::select(member < 2, F::select(member == 0, u, s.x), F::select(member == 2, m, s.zz));
  product = left * F::select(member == 2, m, v);
  const F w = of_member(product, 0), t = of_member(product, 1);
  const F x = of_member(product, 2) - t.dbl();
  s.zz = of_member(product, 3);
  // m (t - x), w y, w zzz
  product = F::select(member == 0, m, w) * F::select(member == 0, t - x, F::select(member == 1, s.y, s.zzz));
  s.x = x;
  s.y = of_member(product, 0) - of_member(product, 1);
  s.zzz = of_member(product, 2);
}

}  // namespace CUZK_PATH
}  // namespace cuzk
