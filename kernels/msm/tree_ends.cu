// Between the passes of a round, and after the last one; see tree_cuda.hpp. -DCUZK_CURVE=, -DCUZK_GROUP=.
#define CUZK_FIRST 0
#include "../ec/converged_cuda.hpp"
#include "tree_rounds.hpp"

using namespace cuzk::CUZK_PATH;

// Inverses of the totals of a round, up to `share` of them by one inversion; `inverters`: warps that fill the device.
extern "C" __global__ void __launch_bounds__(128)
    tree_invert(const uint32_t *tasks_made, uint32_t each, uint32_t least, uint32_t share, uint32_t inverters,
                const Quad *totals, Quad *inverses) {
  const Place place = Place::of(tasks_made, each, least);
  const uint32_t step = tree_warps(place.warps, share, inverters);
  if (place.warp >= step) return;
  invert_totals<Coordinate>(totals + place.lane, inverses + place.lane, place.warp, step, place.warps);
}

// XYZZ sums of what `rounds` rounds left of the lists, to sums[task.out].
extern "C" __global__ void __launch_bounds__(128)
    tree_finish(const Task *tasks, const uint32_t *tasks_made, uint32_t *classes, uint32_t longest, const Quad *rows,
                uint32_t rounds, char *sums) {
  const Place place = Place::of(tasks_made, 1, 0);
  if (place.warp >= place.groups) return;
  const auto group =
      TreeGroup::of<Coordinate>(place.warp, place.lane, tasks, Classes{classes, classes + longest + 1});
  const Stored<Coordinate> list{rows + (uint64_t)group.row * Rows<Coordinate>::point_row + place.lane};
  const uint32_t left = Halving::left(group.length, rounds);
  Sum sum = Sum::from({list.x(0), list.y(0)});
  for (uint32_t i = 1; i < left; i++) {
    const Point p{list.x(i), list.y(i)};
#if CUZK_GROUP == 1
    sum.add(p);
#else
    add_converged(sum, p, true);
#endif
  }
  const Task task = tasks[(uint64_t)place.warp * (warp_size / Coordinate::lanes) + place.lane / Coordinate::lanes];
  if (task.length) store_sum(sums + (uint64_t)task.out * sum_bytes, sum);
}
