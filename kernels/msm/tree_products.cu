// A round's first pass: products of denominators; see tree_cuda.hpp and tree_rounds.hpp for the macros.
#include "tree_rounds.hpp"

using namespace cuzk::CUZK_PATH;

// totals: a row a warp. products: unused in the first round.
extern "C" __global__ void __launch_bounds__(128, CUZK_BLOCKS)
    tree_products(const Task *tasks, const uint32_t *tasks_made, uint32_t *classes, uint32_t longest,
                  const uint32_t *entries, const char *points, const char *images, uint32_t count,
                  Quad *rows, Quad *products, Quad *totals,
                  uint32_t number, uint32_t each, uint32_t least) {
  const Place place = Place::of(tasks_made, each, least);
  if (place.warp >= place.warps) return;
  const ThisRound round{tasks,   Classes{classes, classes + longest + 1}, place.groups, number, entries,
                        PointTable{points, images, count}, rows,
                        ThisRound::first_round ? rows : products};
  const Coordinate product = round.multiply_up(place.warp, place.warps, place.lane);
  Rows<Coordinate>::store(totals + (uint64_t)place.warp * Rows<Coordinate>::element_row + place.lane, product);
}
