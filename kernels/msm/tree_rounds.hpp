// What the programs of a round share; -DCUZK_CURVE=, -DCUZK_GROUP=, -DCUZK_FIRST= 1 for the round that gathers.
#pragma once
#define CUZK_CONVERGED
#include "group_cuda.hpp"
#include "tree_round_cuda.hpp"

namespace cuzk {
namespace CUZK_PATH {

#if CUZK_FIRST
using ThisRound = Round<Gathered<Coordinate>>;
#else
using ThisRound = Round<Stored<Coordinate>>;
#endif

// This thread's part: warps share the groups evenly, see tree_warps.
struct Place {
  uint32_t groups, warps, warp, lane;

  static CUZK_INLINE Place of(const uint32_t *tasks_made, uint32_t each, uint32_t least) {
    const uint32_t groups = *tasks_made / (warp_size / Coordinate::lanes);
    return {groups, tree_warps(groups, each, least), (blockIdx.x * blockDim.x + threadIdx.x) / warp_size,
            threadIdx.x % warp_size};
  }
};

}  // namespace CUZK_PATH
}  // namespace cuzk
