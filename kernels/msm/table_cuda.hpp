// Where the coordinates of an entry's point lie.
#pragma once
#include "../ff/config.hpp"

namespace cuzk {
namespace CUZK_PATH {

// `count` affine points, and behind them, as numbers count + i, their images (images.cu), of which only x is stored.
struct PointTable {
  const char *points, *images;
  uint32_t count;

  template <class F>
  CUZK_INLINE const char *x(uint32_t entry) const {
    const uint32_t i = entry & 0x7fffffffu;
    return i < count ? points + (uint64_t)i * (2 * F::bytes) : images + (uint64_t)(i - count) * F::bytes;
  }
  template <class F>
  CUZK_INLINE const char *y(uint32_t entry) const {
    const uint32_t i = entry & 0x7fffffffu;
    return points + (uint64_t)(i < count ? i : i - count) * (2 * F::bytes) + F::bytes;
  }
};

}  // namespace CUZK_PATH
}  // namespace cuzk
