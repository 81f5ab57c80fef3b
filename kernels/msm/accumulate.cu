// Sorted entries into bucket sums; -DCUZK_CURVE=, -DCUZK_GROUP=.
#define CUZK_CONVERGED
#include "../ec/converged_cuda.hpp"
#include "../ff/async_copy_cuda.hpp"
#include "group_cuda.hpp"
#include "table_cuda.hpp"
#include "tasks_cuda.hpp"

using namespace cuzk::CUZK_PATH;

namespace {

using Component = Coordinate::F;  // what one thread holds of a coordinate
constexpr int component_quads = Component::bytes / 16;
constexpr int point_quads = 2 * component_quads;

// This thread's part of the point of an entry, into its column of a buffer of 128 columns.
CUZK_INLINE void fetch(Quad *buffer, const PointTable &table, uint32_t entry) {
  const char *x = table.x<Coordinate>(entry) + Coordinate::component_offset();
  const char *y = table.y<Coordinate>(entry) + Coordinate::component_offset();
CUZK_UNROLL
  for (int k = 0; k < component_quads; k++) {
    copy_quad_async(buffer + k * 128, x + k * 16);
    copy_quad_async(buffer + (component_quads + k) * 128, y + k * 16);
  }
  copies_commit();
}

CUZK_INLINE Coordinate take(const Quad *buffer) {
  Component c;
CUZK_UNROLL
  for (int k = 0; k < component_quads; k++) {
    const Quad q = buffer[k * 128];
    c.v[4 * k] = q.x, c.v[4 * k + 1] = q.y, c.v[4 * k + 2] = q.z, c.v[4 * k + 3] = q.w;
  }
  return Coordinate::of_component(c);
}

}  // namespace

// One task a thread (or pair of threads); sums[task.out] gets its sum. While a point is added, the next one is copied
// to shared memory: fewer registers than a copy of their own, so one more warp a scheduler.
extern "C" __global__ void __launch_bounds__(128, CUZK_BLOCKS)
    msm_accumulate(const Task *tasks, const uint32_t *count, const uint32_t *entries, const char *points,
                   const char *images, uint32_t points_count, char *sums) {
  const PointTable table{points, images, points_count};
  __shared__ Quad buffers[2][point_quads * 128];
  const uint32_t t = (blockIdx.x * 128 + threadIdx.x) / Coordinate::lanes, tasks_made = *count;
  Task task{0, 0, 0};
  if (t < tasks_made) task = tasks[t];
#if CUZK_GROUP == 1
  const uint32_t steps = task.length;  // threads on their own
#else
  const uint32_t steps = most_of_warp(task.length);
#endif
  if (steps == 0) return;
  const uint32_t *list = entries + task.start;
  uint32_t entry = 0;
  if (task.length) entry = list[0];
  fetch(&buffers[0][threadIdx.x], table, entry);
  Sum sum = Sum::infinity();
  for (uint32_t i = 0; i < steps; i++) {
    const uint32_t sign = entry >> 31;
    if (i + 1 < steps) {
      if (i + 1 < task.length) entry = list[i + 1];
      fetch(&buffers[(i + 1) & 1][threadIdx.x], table, entry);
      copies_wait<1>();
    } else {
      copies_wait<0>();
    }
    const Quad *here = &buffers[i & 1][threadIdx.x];
    Point p{take(here), take(here + component_quads * 128)};
    p.y = Coordinate::select(sign != 0, -p.y, p.y);
#if CUZK_GROUP == 1
    sum.add(p);
#else
    add_converged(sum, p, i < task.length);
#endif
  }
  if (task.length) store_sum(sums + (uint64_t)task.out * sum_bytes, sum);
}
