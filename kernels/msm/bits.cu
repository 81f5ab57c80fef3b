// Sums by bit of the rows' and columns' numbers; -DCUZK_CURVE=, -DCUZK_GROUP=. See reduce_cuda.hpp.
#include "reduce_cuda.hpp"

using namespace cuzk::CUZK_PATH;

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
