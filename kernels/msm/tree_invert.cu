// Between the passes of a round; see tree_round_cuda.hpp. -DCUZK_CURVE=, -DCUZK_GROUP=.
#define CUZK_FIRST 0
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
