// Windows, and the result; -DCUZK_CURVE=, -DCUZK_GROUP=. See reduce_cuda.hpp.
#include "reduce_cuda.hpp"

using namespace cuzk::CUZK_PATH;

// out[window] from the bit sums of its 2^row_log rows and 2^column_log columns: each is doubled by a team of four threads
// or pairs, then all are added. A block of 32 teams a window; row_log + column_log < 32.
extern "C" __global__ void __launch_bounds__(128 * lanes)
    msm_window(const char *rows, const char *columns, uint32_t row_log, uint32_t column_log, char *out) {
  __shared__ alignas(16) char scratch[32 * sum_bytes];
  const uint32_t t = threadIdx.x / lanes, k = t / 4, bits = row_log + column_log;
  const char *row = at(rows, (uint64_t)blockIdx.x * (row_log + 1));
  const char *column = at(columns, (uint64_t)blockIdx.x * (column_log + 1));
  // Bit k of the index, k < bits: column bits below row bits; k = bits: the sum of all columns, once.
  const bool of_column = k < column_log || k >= bits;
  Sum sum = load_sum(of_column ? at(column, k < column_log ? k : column_log) : at(row, k - column_log));
  sum = select(k <= bits, sum, Sum::infinity());
  const uint32_t doublings = k < bits ? k : 0, most = most_of_warp(doublings);
  for (uint32_t i = 0; i < most; i++) {
    Sum twice = sum;
    double_by_team(twice);
    sum = select(i < doublings, twice, sum);
  }
  if (t % 4 == 0) store_sum(at(scratch, k), sum);
  __syncthreads();
  sum = load_sum(at(scratch, t % 32));
  __syncthreads();
  sum_of_block(sum, scratch, 32);  // the first 32 threads or pairs
  if (t == 0) store_sum(at(out, blockIdx.x), sum);
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
