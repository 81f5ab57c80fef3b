// Sorted entries into bucket sums; -DCUZK_CURVE=, -DCUZK_GROUP=.
#include "group_cuda.hpp"
#include "tasks_cuda.hpp"

using namespace cuzk::CUZK_PATH;

namespace {

CUZK_INLINE Point load_point(const char *points, uint32_t entry) {
  return Point::load(points + (uint64_t)(entry & 0x7fffffffu) * point_bytes);
}

CUZK_INLINE void apply_sign(Point &p, uint32_t entry) {
  const Coordinate minus = -p.y;
  if (entry >> 31) p.y = minus;
}

}  // namespace

// One task a thread (or pair of threads); sums[task.out] gets its sum. The next point is fetched while one is added.
extern "C" __global__ void __launch_bounds__(128, CUZK_BLOCKS)
    msm_accumulate(const Task *tasks, const uint32_t *count, const uint32_t *entries, const char *points, char *sums) {
  const uint32_t t = (blockIdx.x * 128 + threadIdx.x) / Coordinate::lanes;
  if (t >= *count) return;
  const Task task = tasks[t];
  const uint32_t *list = entries + task.start;
  uint32_t entry = list[0];
  Point next = load_point(points, entry);
  Sum sum = Sum::infinity();
  for (uint32_t i = 0; i < task.length; i++) {
    Point p = next;
    apply_sign(p, entry);
    if (i + 1 < task.length) {
      entry = list[i + 1];
      next = load_point(points, entry);
    }
    sum.add(p);
  }
  store_sum(sums + (uint64_t)task.out * sum_bytes, sum);
}
