// After the last round; see tree_cuda.hpp. -DCUZK_CURVE=, -DCUZK_GROUP=.
#define CUZK_CONVERGED
#include "group_cuda.hpp"
#include "tree_cuda.hpp"

using namespace cuzk::CUZK_PATH;

// The one point that is left of each list, to sums[task.out], XYZZ.
extern "C" __global__ void __launch_bounds__(128)
    tree_finish(const Task *tasks, const uint32_t *tasks_made, uint32_t *classes, uint32_t longest, const Quad *rows,
                char *sums) {
  constexpr uint32_t width = warp_size / Coordinate::lanes;
  const uint32_t g = (blockIdx.x * 128 + threadIdx.x) / warp_size, lane = threadIdx.x % warp_size;
  if (g >= *tasks_made / width) return;
  const auto group = TreeGroup::of<Coordinate>(g, lane, tasks, Classes{classes, classes + longest + 1});
  const Stored<Coordinate> list{rows + (uint64_t)group.row * Rows<Coordinate>::point_row + lane};
  const Sum sum = Sum::from({list.x(0), list.y(0)});
  const Task task = tasks[(uint64_t)g * width + lane / Coordinate::lanes];
  if (task.length) store_sum(sums + (uint64_t)task.out * sum_bytes, sum);
}
