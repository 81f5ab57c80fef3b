// How the levels of a transform are shared by passes over the data.
#pragma once
#include "../ff/config.hpp"

namespace cuzk {
namespace CUZK_PATH {

struct Passes {
  struct Pass {
    uint32_t first, levels;  // levels [first, first + levels), large blocks first
  };
  static constexpr uint32_t max_count = 8;

  // The last pass takes up to `contiguous` levels, the others share what is left, each at most `gathered`.
  Passes(uint32_t log_n, uint32_t contiguous, uint32_t gathered) {
    const uint32_t in_last = log_n < contiguous ? log_n : contiguous;
    const uint32_t before = log_n - in_last;
    const uint32_t others = (before + gathered - 1) / gathered;
    uint32_t first = 0;
    for (uint32_t i = 0; i < others; i++) {
      const uint32_t levels = (before - first + (others - i) - 1) / (others - i);
      pass[i] = {first, levels};
      first += levels;
    }
    pass[others] = {first, in_last};
    count = others + 1;
  }

  Pass pass[max_count];
  uint32_t count;
};

}  // namespace CUZK_PATH
}  // namespace cuzk
