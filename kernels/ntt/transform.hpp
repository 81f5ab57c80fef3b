// Number-theoretic transforms of 2^log_n elements in place, cache-blocked and multi-threaded.
//
// The levels (see tile.hpp) are done in passes. A pass over large blocks treats a block as a matrix of 2^k rows and
// joins its rows within each column, so that columns are independent: a tile of a few columns is gathered into a buffer
// that stays in the first-level cache (the rows lie a power of two apart and would evict each other where they are),
// goes through k levels, and is written back. The last pass works on contiguous blocks where they lie. Decimating in
// time goes from large blocks to small ones and leaves bit-reversed order, decimating in frequency takes it and goes
// back, so an inverse transform followed by a forward one needs no reordering. (Gentleman and Sande, "Fast Fourier
// transforms for fun and profit"; blocking: Bailey, "FFTs in external or hierarchical memory".)
#pragma once
#include "../capi/run.hpp"
#include "passes.hpp"
#include "table.hpp"
#include "tile.hpp"

namespace cuzk {
namespace CUZK_PATH {

template <class Fr, class Tile>
class Transform {
 public:
  Transform(Fr *data, uint32_t log_n, Run &run)
      : data_(data), log_n_(log_n), run_(run), passes_(log_n, contiguous_levels, gathered_levels) {}

  // Natural order in, reversed out; forward with the table's forward twiddles, inverse (unscaled) with its inverse
  // ones. factors, where given, are multiplied to the result.
  bool to_reversed(const Fr *twiddles, const Fr *factors) {
    for (uint32_t i = 0; i < passes_.count; i++)
      if (!pass(i, twiddles, &Tile::forward)) return false;
    if (!factors) return true;
    return run_.ranges(uint64_t{1} << log_n_, 4096, [&](uint64_t begin, uint64_t end, unsigned) {
      for (uint64_t i = begin; i < end; i++) data_[i] = data_[i] * factors[i];
    });
  }

  // Reversed order in, natural out.
  bool to_natural(const Fr *twiddles) {
    for (uint32_t i = passes_.count; i-- > 0;)
      if (!pass(i, twiddles, &Tile::backward)) return false;
    return true;
  }

 private:
  using Levels = void (*)(Fr *, uint32_t, size_t, size_t, const Fr *, uint64_t);
  static constexpr uint32_t contiguous_levels = 10;  // 2^10 elements: 32 KiB, the smallest common first-level cache
  static constexpr uint32_t gathered_levels = 7;     // 2^7 rows of 128 bytes: half of it

  bool pass(uint32_t number, const Fr *twiddles, Levels levels) {
    const Passes::Pass p = passes_.pass[number];
    const uint32_t log_block = log_n_ - p.first;
    if (number + 1 == passes_.count) {
      return run_.parallel(size_t{1} << p.first, [&](size_t block, unsigned) {
        levels(data_ + (block << log_block), p.levels, 1, 1, twiddles, block);
      });
    }
    const uint32_t log_pitch = log_block - p.levels;
    const uint64_t columns = uint64_t{1} << log_pitch;
    const uint64_t tiles = columns / Tile::column_count;  // columns >= 2^contiguous_levels here
    return run_.parallel(tiles << p.first, [&](size_t task, unsigned) {
      const uint64_t block = task / tiles;
      gather(data_ + (block << log_block) + task % tiles * Tile::column_count, p.levels, log_pitch, twiddles, block,
             levels);
    });
  }

  static void gather(Fr *x, uint32_t level_count, uint32_t log_pitch, const Fr *twiddles, uint64_t block,
                     Levels levels) {
    constexpr size_t columns = Tile::column_count;
    alignas(64) Fr tile[columns << gathered_levels];
    for (size_t r = 0; r < size_t{1} << level_count; r++)
      memcpy(tile + r * columns, x + (r << log_pitch), columns * sizeof(Fr));
    levels(tile, level_count, columns, columns, twiddles, block);
    for (size_t r = 0; r < size_t{1} << level_count; r++)
      memcpy(x + (r << log_pitch), tile + r * columns, columns * sizeof(Fr));
  }

  Fr *data_;
  uint32_t log_n_;
  Run &run_;
  Passes passes_;
};

}  // namespace CUZK_PATH
}  // namespace cuzk
