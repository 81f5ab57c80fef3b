// Scalars into signed digits, digits into buckets.
#pragma once
#include <string.h>

#include "../capi/run.hpp"
#include "plan.hpp"

namespace cuzk {
namespace CUZK_PATH {

enum class ScalarKind { zero, one, other };

struct Scalar {
  uint64_t v[4];

  static CUZK_INLINE Scalar load(const void *scalars, uint64_t i) {
    Scalar s;
    memcpy(s.v, static_cast<const char *>(scalars) + i * sizeof s.v, sizeof s.v);
    return s;
  }
  CUZK_INLINE ScalarKind kind() const {
    if (v[1] | v[2] | v[3] | (v[0] & ~uint64_t{1})) return ScalarKind::other;
    return v[0] ? ScalarKind::one : ScalarKind::zero;
  }
  template <class Fr>
  CUZK_INLINE bool is_below_order() const {
    return Fr::load(v).is_reduced();
  }
};

// Signed digits without carries: with K = sum of 2^(c-1) 2^(c w) over all windows but the top one, window w of s + K,
// less 2^(c-1), is a digit of s in [-2^(c-1), 2^(c-1)).
class DigitCutter {
 public:
  DigitCutter(uint32_t window, uint32_t windows) : window_(window), windows_(windows) {
    for (uint32_t w = 0; w + 1 < windows; w++) {
      const uint32_t bit = window * w + window - 1;
      offset_[bit / 64] |= uint64_t{1} << (bit % 64);
    }
  }

  // out[w * pitch] = digit + 2^(c-1).
  CUZK_INLINE void cut(const Scalar &s, uint16_t *out, uint64_t pitch) const {
    uint64_t t[5], carry = 0;
    for (int i = 0; i < 4; i++) {
      const unsigned __int128 x = (unsigned __int128)s.v[i] + offset_[i] + carry;
      t[i] = (uint64_t)x;
      carry = (uint64_t)(x >> 64);
    }
    t[4] = 0;
    const uint64_t mask = (uint64_t{1} << window_) - 1;
    for (uint32_t w = 0; w < windows_; w++) {
      const uint32_t bit = window_ * w, limb = bit / 64, shift = bit % 64;
      uint64_t x = t[limb] >> shift;
      if (shift) x |= t[limb + 1] << (64 - shift);
      if (w + 1 == windows_)
        x = (x & mask) + (uint64_t{1} << (window_ - 1));  // not offset; at most 2^(c-1)
      else
        x &= mask;
      out[w * pitch] = static_cast<uint16_t>(x);
    }
  }

 private:
  uint32_t window_, windows_;
  uint64_t offset_[4] = {};
};

// An entry: a point's number within the slab, and whether it is taken away.
CUZK_INLINE uint32_t make_entry(uint32_t point, bool negative) { return point << 1 | (negative ? 1 : 0); }

// Sorts the digits of one slab of scalars: after sort(), the entries of bucket b are entries[starts[b]] up to
// entries[starts[b + 1] - 1]. Bucket w * buckets + d - 1 takes digit +-d of window w, the last bucket the ones.
template <class Plan>
class DigitSorter {
 public:
  DigitSorter(const Plan &plan, uint32_t *starts, uint32_t *entries, uint16_t *digits, uint32_t *others,
              uint32_t *blocks)
      : plan_(plan), starts_(starts), entries_(entries), digits_(digits), others_(others), blocks_(blocks) {}

  // total() entries stand afterwards. CUZK_E_DATA when a scalar is not below r: its digits would need another bucket.
  int sort(const void *scalars, uint64_t n, Run &run) {
    std::atomic<bool> bad{false};
    if (!count_kinds(scalars, n, run) || !cut(scalars, n, bad, run)) return CUZK_E_CANCELLED;
    if (bad) return CUZK_E_DATA;
    return count_digits(run) && scatter(run) ? CUZK_OK : CUZK_E_CANCELLED;
  }
  uint64_t total() const { return starts_[plan_.all_buckets()]; }

 private:
  bool count_kinds(const void *scalars, uint64_t n, Run &run) {
    const bool done = run.ranges(n, Plan::block, [&](uint64_t begin, uint64_t end, unsigned) {
      uint32_t others = 0, ones = 0;
      for (uint64_t i = begin; i < end; i++) {
        const ScalarKind kind = Scalar::load(scalars, i).kind();
        others += kind == ScalarKind::other;
        ones += kind == ScalarKind::one;
      }
      blocks_[2 * (begin / Plan::block)] = others;
      blocks_[2 * (begin / Plan::block) + 1] = ones;
    });
    if (!done) return false;
    count_ = ones_ = 0;
    for (uint64_t b = 0; b * Plan::block < n; b++) {
      const uint32_t others = blocks_[2 * b], ones = blocks_[2 * b + 1];
      blocks_[2 * b] = count_;
      blocks_[2 * b + 1] = ones_;
      count_ += others;
      ones_ += ones;
    }
    return true;
  }

  // Ones go to the far end of the entries' room for now: where they belong is known after the digits are counted.
  bool cut(const void *scalars, uint64_t n, std::atomic<bool> &bad, Run &run) {
    const DigitCutter cutter(plan_.window, plan_.windows);
    uint32_t *ones = entries_ + plan_.max_entries() - ones_;
    return run.ranges(n, Plan::block, [&](uint64_t begin, uint64_t end, unsigned) {
      uint32_t other = blocks_[2 * (begin / Plan::block)], one = blocks_[2 * (begin / Plan::block) + 1];
      for (uint64_t i = begin; i < end; i++) {
        const Scalar s = Scalar::load(scalars, i);
        const ScalarKind kind = s.kind();
        if (kind == ScalarKind::one) ones[one++] = make_entry(static_cast<uint32_t>(i), false);
        if (kind != ScalarKind::other) continue;
        if (!s.is_below_order<typename Plan::Fr>()) bad.store(true, std::memory_order_relaxed);
        others_[other] = static_cast<uint32_t>(i);
        cutter.cut(s, digits_ + other, plan_.digit_pitch());
        other++;
      }
    });
  }

  // Counts lie two places up, so that after the prefix sum starts_[b + 1] is where bucket b begins, and after each
  // entry has moved it on, where it ends.
  bool count_digits(Run &run) {
    const int32_t middle = 1 << (plan_.window - 1);
    for (int i = 0; i < 2; i++) starts_[i] = 0;
    const bool done = run.parallel(plan_.windows, [&](size_t w, unsigned) {
      uint32_t *counts = starts_ + 2 + w * plan_.buckets;
      memset(counts, 0, plan_.buckets * sizeof *counts);
      const uint16_t *digits = digits_ + w * plan_.digit_pitch();
      for (uint32_t k = 0; k < count_; k++) {
        const int32_t d = digits[k] - middle;
        if (d != 0) counts[(d < 0 ? -d : d) - 1]++;
      }
    });
    if (!done) return false;
    const uint64_t last = plan_.all_buckets() - 1;
    starts_[last + 2] = 0;  // only a place for the sum: the ones are placed by scatter()
    for (uint64_t b = 0; b < last; b++) starts_[b + 2] += starts_[b + 1];
    return true;
  }

  bool scatter(Run &run) {
    const int32_t middle = 1 << (plan_.window - 1);
    const uint64_t last = plan_.all_buckets() - 1;
    const uint32_t begin_of_ones = starts_[last + 1];
    // The windows' entries may reach into the room where the ones wait: they move first.
    uint32_t *waiting = entries_ + plan_.max_entries() - ones_;
    memmove(entries_ + begin_of_ones, waiting, ones_ * sizeof *entries_);
    const bool done = run.parallel(plan_.windows, [&](size_t w, unsigned) {
      uint32_t *next = starts_ + 1 + w * plan_.buckets;
      const uint16_t *digits = digits_ + w * plan_.digit_pitch();
      for (uint32_t k = 0; k < count_; k++) {
        const int32_t d = digits[k] - middle;
        if (d != 0) entries_[next[(d < 0 ? -d : d) - 1]++] = make_entry(others_[k], d < 0);
      }
    });
    starts_[last + 1] = begin_of_ones + ones_;
    return done;
  }

  const Plan &plan_;
  uint32_t *starts_, *entries_;
  uint16_t *digits_;
  uint32_t *others_, *blocks_;
  uint32_t count_ = 0, ones_ = 0;  // scalars that have digits; scalars that are 1
};

}  // namespace CUZK_PATH
}  // namespace cuzk
