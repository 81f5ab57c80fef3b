// Multiples of one point by many scalars, for setup; -DCUZK_CURVE=, -DCUZK_GROUP=.
#include "group_cuda.hpp"

using namespace cuzk::CUZK_PATH;

namespace {

__noinline__ void add(Sum &a, const Point &b) { a.add(b); }
__noinline__ Point affine(const Sum &a) { return a.to_affine(); }

}  // namespace

// table[w * 256 + d] = d * 2^(8 w) * base for w < 32; one block of 32 threads or pairs.
extern "C" __global__ void __launch_bounds__(64) fixed_table(const char *base, char *table) {
  const uint32_t w = threadIdx.x / Coordinate::lanes;
  Sum step = Sum::from(Point::load(base));
  for (uint32_t i = 0; i < 8 * w; i++) step = step.dbl();
  const Point point = affine(step);
  Sum sum = Sum::infinity();
  for (uint32_t d = 0; d < 256; d++) {
    affine(sum).store(table + (uint64_t)(w * 256 + d) * point_bytes);
    add(sum, point);
  }
}

// out[i] = scalars[i] * base, affine; scalars plain.
extern "C" __global__ void __launch_bounds__(128)
    fixed_multiply(const char *table, const char *scalars, uint32_t n, char *out) {
  const uint32_t step = gridDim.x * 128 / Coordinate::lanes;
  for (uint32_t i = (blockIdx.x * 128 + threadIdx.x) / Coordinate::lanes; i < n; i += step) {
    const uint32_t *words = reinterpret_cast<const uint32_t *>(scalars + (uint64_t)i * 32);
    Sum sum = Sum::infinity();
    for (uint32_t w = 0; w < 32; w++) {
      const uint32_t d = words[w / 4] >> (8 * (w % 4)) & 255;
      add(sum, Point::load(table + (uint64_t)(w * 256 + d) * point_bytes));
    }
    affine(sum).store(out + (uint64_t)i * point_bytes);
  }
}
