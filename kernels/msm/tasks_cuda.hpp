// How sorted entries are shared out: a task is a run of at most `longest` entries of one bucket, summed by one thread.
//
// Buckets up to that length are one task. A longer one (a skewed witness, or the top window) is cut into pieces of
// nearly equal length whose sums go to slots of their own; groups of `fan_in` slots are then summed level by level,
// the last level into the bucket. Tasks are ordered by length, so that the threads of a warp have the same work, and
// long ones start first.
#pragma once
#include "../ff/config.hpp"

namespace cuzk {
namespace CUZK_PATH {

struct Task {
  uint32_t start, length, out;  // out: bucket, or number of buckets + slot
};

// A piece is shorter than the longest task: many short ones leave no multiprocessor idle at the end of a skewed MSM.
constexpr uint32_t longest_piece = 64;

// Cuts `length` entries into `pieces`: the first `longer` have `shorter_length + 1` entries.
struct Cut {
  uint32_t pieces, shorter_length, longer;

  static CUZK_INLINE Cut of(uint32_t length, uint32_t longest) {
    Cut c;
    const uint32_t most = longest < longest_piece ? longest : longest_piece;
    c.pieces = (length + most - 1) / most;
    c.shorter_length = length / c.pieces;
    c.longer = length - c.pieces * c.shorter_length;
    return c;
  }
  CUZK_INLINE uint32_t offset(uint32_t i) const { return i * shorter_length + (i < longer ? i : longer); }
  CUZK_INLINE uint32_t length(uint32_t i) const { return shorter_length + (i < longer ? 1 : 0); }
};

// Tasks of one length are a class. Where a class begins: its first group of `width` tasks (a warp's), and its first row
// (tree_cuda.hpp); tables of longest + 1 words each.
struct Classes {
  uint32_t *groups, *rows;

  // histogram[length] becomes the place of the first task of that length, longest first, each class at a multiple of
  // `width`. Returns the number of places.
  CUZK_INLINE uint32_t order(uint32_t *histogram, uint32_t longest, uint32_t width) const {
    uint32_t group = 0, row = 0;
    for (uint32_t length = longest; length > 0; length--) {
      const uint32_t number = (histogram[length] + width - 1) / width;
      histogram[length] = group * width;
      groups[length] = group;
      rows[length] = row;
      group += number;
      row += number * ((length + 1) / 2);
    }
    return group * width;
  }
};

constexpr uint32_t fan_in_log = 4;
constexpr uint32_t fan_in = 1u << fan_in_log;
constexpr uint32_t most_levels = 7;  // 16^7 pieces of a bucket

// Sum of slots first, first + step, ... (count of them), into out: a slot or, at a bucket's last level, the bucket.
struct Group {
  uint32_t first, step, count, out;

  static CUZK_INLINE uint32_t number(uint32_t pieces, uint32_t level) {  // of groups at a level
    const uint32_t shift = fan_in_log * (level + 1);
    return (pieces + (1u << shift) - 1) >> shift;
  }
  // Slots and out are numbered from `base`, the bucket's first slot.
  static CUZK_INLINE Group of(uint32_t pieces, uint32_t level, uint32_t g, uint32_t base, uint32_t bucket) {
    const uint32_t shift = fan_in_log * level, begin = g << (shift + fan_in_log);
    const uint32_t left = (pieces - begin + (1u << shift) - 1) >> shift;
    const bool last = number(pieces, level) == 1;
    return {base + begin, 1u << shift, left < fan_in ? left : fan_in, last ? bucket : base + begin};
  }
};

// A bucket longer than a task.
struct LongBucket {
  uint32_t bucket, start, length, slot;       // slot: first of its pieces' slots, counted after the buckets
  uint32_t group[most_levels];                // its first group at each level
};

}  // namespace CUZK_PATH
}  // namespace cuzk
