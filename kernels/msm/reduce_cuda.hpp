// Bucket sums to the result: what merge.cu, fold.cu, bits.cu and finish.cu share. They are programs of their own, so that
// they compile side by side: each needs its own copy of the addition.
//
// A window's sum is that of (b + 1) * bucket[b]. With b = high * 2^h + low it is
//     2^h * sum of high * row[high]  +  sum of low * column[low]  +  sum of column[low],
// row and column sums over the other index: two additions a bucket, all independent. The weighted sums over rows and
// columns are taken bit by bit: sum of i * x[i] = sum of 2^k * (sum of x[i] with bit k set).
#pragma once
#define CUZK_CONVERGED
#include "../ec/converged_cuda.hpp"
#include "group_cuda.hpp"

namespace cuzk {
namespace CUZK_PATH {

constexpr uint32_t lanes = Coordinate::lanes;

CUZK_INLINE const char *at(const char *sums, uint64_t i) { return sums + i * sum_bytes; }
CUZK_INLINE char *at(char *sums, uint64_t i) { return sums + i * sum_bytes; }

// A call, with the operands in local memory: that costs nothing beside 14 multiplications, and it is compiled once.
// Where a whole warp has nothing to add, as in the empty buckets of a skewed MSM, it adds nothing.
static __noinline__ void add(Sum &a, const Sum &b, bool active) {
  const bool infinite = b.is_infinity();
  if (any_of_warp(active && !infinite)) add_converged(a, b, active);
}

// Sum of the block's sums, in thread 0 (and its pair); scratch holds one sum a worker. Workers: a power of two, whole
// warps.
CUZK_INLINE void sum_of_block(Sum &sum, char *scratch, uint32_t workers) {
  const uint32_t t = threadIdx.x / lanes;
  for (uint32_t half = workers / 2; half; half /= 2) {
    if (t >= half && t < 2 * half) store_sum(at(scratch, t), sum);
    __syncthreads();
    if ((threadIdx.x & ~31u) / lanes < half) add(sum, load_sum(at(scratch, t < half ? t + half : half)), t < half);
    __syncthreads();
  }
}

}  // namespace CUZK_PATH
}  // namespace cuzk
