// Partial sums of long buckets; -DCUZK_CURVE=, -DCUZK_GROUP=. See reduce_cuda.hpp.
#include "reduce_cuda.hpp"
#include "tasks_cuda.hpp"

using namespace cuzk::CUZK_PATH;

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
