// Sums of rows and columns of buckets; -DCUZK_CURVE=, -DCUZK_GROUP=. See reduce_cuda.hpp.
#include "reduce_cuda.hpp"

using namespace cuzk::CUZK_PATH;

// out[o] = sum over i < count of in[(o / inner) * inner * count + o % inner + i * inner], for o < n.
struct Fold {
  const char *in;
  char *out;
  uint32_t n, count, inner;
};

// One level of the row sums (blockIdx.y = 0) and of the column sums (1).
extern "C" __global__ void __launch_bounds__(128, CUZK_BLOCKS)
    msm_fold(const char *row_in, char *row_out, uint32_t rows, uint32_t row_count, const char *column_in, char
    *column_out,
             uint32_t columns, uint32_t column_count, uint32_t column_inner) {
  const Fold fold = blockIdx.y == 0 ? Fold{row_in, row_out, rows, row_count, 1}
                                    : Fold{column_in, column_out, columns, column_count, column_inner};
  if (blockIdx.x * 128 / lanes >= fold.n) return;
  const uint32_t o = (blockIdx.x * 128 + threadIdx.x) / lanes, k = o < fold.n ? o : fold.n - 1;
  const uint64_t base = (uint64_t)(k / fold.inner) * fold.inner * fold.count + k % fold.inner;
  Sum sum = load_sum(at(fold.in, base));
  for (uint32_t i = 1; i < fold.count; i++) add(sum, load_sum(at(fold.in, base + (uint64_t)i * fold.inner)), true);
  if (o < fold.n) store_sum(at(fold.out, o), sum);
}
