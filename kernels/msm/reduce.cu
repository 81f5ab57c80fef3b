// Bucket sums to the result; -DCUZK_CURVE=, -DCUZK_GROUP=.
//
// A window's sum is that of (b + 1) * bucket[b]. With b = high * 2^h + low it is
//     2^h * sum of high * row[high]  +  sum of low * column[low]  +  sum of column[low],
// row and column sums over the other index: two additions a bucket, all independent. The weighted sums over rows and
// columns are taken bit by bit: sum of i * x[i] = sum of 2^k * (sum of x[i] with bit k set).
#define CUZK_CONVERGED
#include "../ec/converged_cuda.hpp"
#include "group_cuda.hpp"
#include "tasks_cuda.hpp"

using namespace cuzk::CUZK_PATH;

namespace {

constexpr uint32_t lanes = Coordinate::lanes;

CUZK_INLINE const char *at(const char *sums, uint64_t i) { return sums + i * sum_bytes; }
CUZK_INLINE char *at(char *sums, uint64_t i) { return sums + i * sum_bytes; }

// A call, with the operands in local memory: that costs nothing beside 14 multiplications, and it is compiled once.
// Where a whole warp has nothing to add, as in the empty buckets of a skewed MSM, it adds nothing.
__noinline__ void add(Sum &a, const Sum &b, bool active) {
  const bool infinite = b.is_infinity();
  if (any_of_warp(active && !infinite)) add_converged(a, b, active);
}

}  // namespace

// Groups of partial sums of long buckets; see tasks_cuda.hpp.
extern "C" __global__ void __launch_bounds__(128, CUZK_BLOCKS)
    msm_merge(const Group *groups, const uint32_t *count, char *sums) {
  const uint32_t n = *count, step = gridDim.x * 128 / lanes;
  const uint32_t first = (blockIdx.x * 128 + (threadIdx.x & ~31u)) / lanes, within = (threadIdx.x & 31) / lanes;
  for (uint32_t base = first; base < n; base += step) {  // the same for all of a warp
    const bool active = base + within < n;
    const Group group = groups[active ? base + within : base];
    Sum sum = load_sum(at(sums, group.first));
    const uint32_t most = most_of_warp(group.count);
    for (uint32_t i = 1; i < most; i++) {
      const bool more = i < group.count;
      add(sum, load_sum(at(sums, group.first + (uint64_t)(more ? i : 0) * group.step)), more);
    }
    if (active) store_sum(at(sums, group.out), sum);
  }
}

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

// out[window * (log + 1) + k] = sum of in[window * 2^log + i] over i with bit k set, for k < log; over all i for k =
// log. Grid (bits, windows, 2): rows, then columns; 64 summing threads or pairs a block.
extern "C" __global__ void __launch_bounds__(64 * lanes)
    msm_bits(const char *rows, char *row_out, uint32_t row_log, const char *columns, char *column_out,
             uint32_t column_log) {
  constexpr uint32_t workers = 64;
  __shared__ alignas(16) char scratch[workers * sum_bytes];
  const uint32_t t = threadIdx.x / lanes, k = blockIdx.x, log = blockIdx.z ? column_log : row_log;
  if (k > log) return;
  const char *window = at(blockIdx.z ? columns : rows, (uint64_t)blockIdx.y << log);
  char *out = at(blockIdx.z ? column_out : row_out, (uint64_t)blockIdx.y * (log + 1) + k);
  const uint32_t n = k < log ? 1u << (log - 1) : 1u << log;
  Sum sum = Sum::infinity();
  for (uint32_t base = 0; base < n; base += workers) {
    const uint32_t j = base + t < n ? base + t : n - 1;
    const uint32_t i = k < log ? (j >> k) << (k + 1) | 1u << k | (j & ((1u << k) - 1)) : j;
    add(sum, load_sum(at(window, i)), base + t < n);
  }
  sum_of_block(sum, scratch, workers);
  if (t == 0) store_sum(out, sum);
}

// out[window] from the bit sums of its 2^row_log rows and 2^column_log columns: each is doubled in a thread of its
// own, then all are added. One block of 32 threads or pairs a window; row_log + column_log < 32.
extern "C" __global__ void __launch_bounds__(32 * lanes)
    msm_window(const char *rows, const char *columns, uint32_t row_log, uint32_t column_log, char *out) {
  __shared__ alignas(16) char scratch[32 * sum_bytes];
  const uint32_t k = threadIdx.x / lanes, bits = row_log + column_log;
  const char *row = at(rows, (uint64_t)blockIdx.x * (row_log + 1));
  const char *column = at(columns, (uint64_t)blockIdx.x * (column_log + 1));
  // Bit k of the index, k < bits: column bits below row bits; k = bits: the sum of all columns, once.
  const bool of_column = k < column_log || k >= bits;
  Sum sum = load_sum(of_column ? at(column, k < column_log ? k : column_log) : at(row, k - column_log));
  sum = select(k <= bits, sum, Sum::infinity());
  for (uint32_t i = 1; i < bits; i++) sum = select(i <= k && k < bits, sum.dbl(), sum);
  sum_of_block(sum, scratch, 32);
  if (k == 0) store_sum(at(out, blockIdx.x), sum);
}

// *total = *total * 2^(window_bits * windows) + sum of 2^(window_bits * w) * sums[w]; with `fresh` *total counts as
// infinity. One warp.
extern "C" __global__ void __launch_bounds__(32)
    msm_total(const char *sums, uint32_t windows, uint32_t window_bits, int fresh, char *total) {
  Sum sum = fresh ? Sum::infinity() : load_sum(total);
  for (uint32_t w = windows; w-- > 0;) {
    if (!(fresh && w == windows - 1))
      for (uint32_t i = 0; i < window_bits; i++) double_by_team(sum);
    add(sum, load_sum(at(sums, w)), true);
  }
  if (threadIdx.x < lanes) store_sum(total, sum);
}
