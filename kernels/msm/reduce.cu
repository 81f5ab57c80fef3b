// Bucket sums to the result; -DCUZK_CURVE=, -DCUZK_GROUP=.
//
// A window's sum is that of (b + 1) * bucket[b]. With b = high * 2^h + low it is
//     2^h * sum of high * row[high]  +  sum of low * column[low]  +  sum of column[low],
// row and column sums over the other index: two additions a bucket, all independent. The weighted sums over rows and columns are
// taken bit by bit: sum of i * x[i] = sum of 2^k * (sum of x[i] with bit k set).
#include "group_cuda.hpp"
#include "tasks_cuda.hpp"

using namespace cuzk::CUZK_PATH;

namespace {

constexpr uint32_t lanes = Coordinate::lanes;

CUZK_INLINE const char *at(const char *sums, uint64_t i) { return sums + i * sum_bytes; }
CUZK_INLINE char *at(char *sums, uint64_t i) { return sums + i * sum_bytes; }

// Calls, with the operands in local memory: that costs nothing beside 14 multiplications, and each is compiled once.
__noinline__ void add(Sum &a, const Sum &b) { a.add(b); }
__noinline__ void twice(Sum &a) { a = a.dbl(); }

}  // namespace

// Groups of partial sums of long buckets; see tasks_cuda.hpp.
extern "C" __global__ void __launch_bounds__(128) msm_merge(const Group *groups, const uint32_t *count, char *sums) {
  for (uint32_t t = (blockIdx.x * 128 + threadIdx.x) / lanes; t < *count; t += gridDim.x * 128 / lanes) {
    const Group group = groups[t];
    Sum sum = load_sum(at(sums, group.first));
    for (uint32_t i = 1; i < group.count; i++) add(sum, load_sum(at(sums, group.first + (uint64_t)i * group.step)));
    store_sum(at(sums, group.out), sum);
  }
}

// out[o] = sum over i < count of in[(o / inner) * inner * count + o % inner + i * inner], for o < n.
extern "C" __global__ void __launch_bounds__(128) msm_fold(const char *in, char *out, uint32_t n, uint32_t count, uint32_t inner) {
  const uint32_t o = (blockIdx.x * 128 + threadIdx.x) / lanes;
  if (o >= n) return;
  const uint64_t base = (uint64_t)(o / inner) * inner * count + o % inner;
  Sum sum = load_sum(at(in, base));
  for (uint32_t i = 1; i < count; i++) add(sum, load_sum(at(in, base + (uint64_t)i * inner)));
  store_sum(at(out, o), sum);
}

// out[window * (log + 1) + k] = sum of in[window * 2^log + i] over i with bit k set, for k < log; over all i for k = log.
// Grid (log + 1, windows), 64 summing threads a block.
extern "C" __global__ void __launch_bounds__(128) msm_bits(const char *in, char *out, uint32_t log) {
  constexpr uint32_t workers = 64;
  __shared__ alignas(16) char scratch[workers * sum_bytes];
  const uint32_t t = threadIdx.x / lanes, k = blockIdx.x;
  const char *window = at(in, (uint64_t)blockIdx.y << log);
  const uint32_t n = k < log ? 1u << (log - 1) : 1u << log;
  Sum sum = Sum::infinity();
  for (uint32_t j = t; j < n; j += workers) {
    const uint32_t i = k < log ? (j >> k) << (k + 1) | 1u << k | (j & ((1u << k) - 1)) : j;
    add(sum, load_sum(at(window, i)));
  }
  for (uint32_t half = workers / 2; half; half /= 2) {
    if (t >= half && t < 2 * half) store_sum(at(scratch, t), sum);
    __syncthreads();
    if (t < half) add(sum, load_sum(at(scratch, t + half)));
    __syncthreads();
  }
  if (t == 0) store_sum(at(out, (uint64_t)blockIdx.y * (log + 1) + k), sum);
}

// One block: window sums, then the result. rows: bit sums of 2^row_log rows a window, columns likewise; at most 64 windows.
extern "C" __global__ void __launch_bounds__(128)
    msm_finish(const char *rows, const char *columns, uint32_t row_log, uint32_t column_log, uint32_t windows, uint32_t window_bits,
               char *out) {
  __shared__ alignas(16) char scratch[64 * sum_bytes];
  const uint32_t w = threadIdx.x / lanes;
  if (w < windows) {
    const char *row = at(rows, (uint64_t)w * (row_log + 1)), *column = at(columns, (uint64_t)w * (column_log + 1));
    Sum sum = Sum::infinity();
    for (int k = (int)(row_log + column_log) - 1; k >= 0; k--) {
      twice(sum);
      add(sum, load_sum((uint32_t)k >= column_log ? at(row, (uint32_t)k - column_log) : at(column, (uint32_t)k)));
    }
    add(sum, load_sum(at(column, column_log)));
    store_sum(at(scratch, w), sum);
  }
  __syncthreads();
  if (w == 0) {
    Sum sum = load_sum(at(scratch, windows - 1));
    for (uint32_t v = windows - 1; v-- > 0;) {
      for (uint32_t i = 0; i < window_bits; i++) twice(sum);
      add(sum, load_sum(at(scratch, v)));
    }
    store_sum(out, sum);
  }
}
