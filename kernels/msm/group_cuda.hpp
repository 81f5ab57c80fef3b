// The group that a program of msm/ works on: -DCUZK_CURVE= names the curve, -DCUZK_GROUP= is 1 or 2. A program that
// keeps its warps together defines CUZK_CONVERGED.
#pragma once
#include "../ec/curves.hpp"
#include "../ff/fp2_pair_cuda.hpp"

namespace cuzk {
namespace CUZK_PATH {

#if CUZK_GROUP == 1
using Coordinate = CUZK_CURVE::Fq;
#else
#ifdef CUZK_CONVERGED
using Coordinate = Fp2Pair<CUZK_CURVE::Fq, true>;
#else
using Coordinate = Fp2Pair<CUZK_CURVE::Fq>;
#endif
#endif
using Point = Affine<Coordinate>;
using Sum = Xyzz<Coordinate>;

constexpr size_t point_bytes = 2 * Coordinate::bytes;
constexpr size_t sum_bytes = 4 * Coordinate::bytes;

CUZK_INLINE Sum load_sum(const char *p) {
  return {Coordinate::load(p), Coordinate::load(p + Coordinate::bytes), Coordinate::load(p + 2 * Coordinate::bytes),
          Coordinate::load(p + 3 * Coordinate::bytes)};
}

CUZK_INLINE void store_sum(char *p, const Sum &s) {
  s.x.store(p);
  s.y.store(p + Coordinate::bytes);
  s.zz.store(p + 2 * Coordinate::bytes);
  s.zzz.store(p + 3 * Coordinate::bytes);
}

}  // namespace CUZK_PATH
}  // namespace cuzk
