// Affine forms of sums; -DCUZK_CURVE=, -DCUZK_GROUP=.
#include "group_cuda.hpp"

using namespace cuzk::CUZK_PATH;

// Affine forms of n sums.
extern "C" __global__ void __launch_bounds__(128) sums_to_affine(const char *sums, uint32_t n, char *out) {
  const uint32_t i = (blockIdx.x * 128 + threadIdx.x) / Coordinate::lanes;
  if (i >= n) return;
  const char *p = sums + (uint64_t)i * sum_bytes;
  load_sum(p).to_affine().store(out + (uint64_t)i * point_bytes);
}
