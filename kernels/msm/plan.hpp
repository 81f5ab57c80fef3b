// Sizes of a multi-scalar multiplication: window width, pieces, and where everything lies in the caller's scratch.
#pragma once
#include "../ec/point.hpp"
#include "adder.hpp"

namespace cuzk {
namespace CUZK_PATH {

template <class Curve, class F>
struct MsmPlan {
  using Point = Affine<F>;
  using Fr = typename Curve::Fr;
  static constexpr int scalar_bits = Fr::bits;
  static constexpr uint32_t min_window = 2, max_window = 16;
  static constexpr uint64_t max_slab = uint64_t{1} << 20;  // points at a time: bounds the memory for digits
  static constexpr uint64_t block = 8192;                  // scalars a task
  // Entries a task adds up. Their points and the inverses stay within a second-level cache of 1 MiB.
  static constexpr uint64_t max_chunk = sizeof(Point) <= 64 ? 8192 : sizeof(Point) <= 96 ? 4096 : 2048;
  static constexpr uint64_t min_chunk = 512;

  uint64_t n;        // points
  unsigned threads;
  uint32_t window;   // c: bits of a digit
  uint32_t windows;  // W
  uint64_t buckets;  // a window: 2^(c-1)
  uint64_t slab;     // points that are sorted at a time

  MsmPlan(uint64_t n_, unsigned threads_, uint32_t window_)
      : n(n_),
        threads(threads_),
        window(window_),
        windows(window_count(window_)),
        buckets(uint64_t{1} << (window_ - 1)),
        slab(n_ < max_slab ? n_ : max_slab) {}

  // A digit below the top one lies in [-2^(c-1), 2^(c-1)), so the top window needs a bit to spare.
  static constexpr uint32_t window_count(uint32_t c) { return scalar_bits / c + 1; }

  // Additions of a batch that `others` scalars (neither 0 nor 1) cost with windows of c bits: one for each digit, two
  // for each bucket to sum it (by rows and by columns of a square), and in each window four for each row or column,
  // which are done in XYZZ and weigh 2.5 times as much. Bucket sums are shared by threads as evenly as the digits are,
  // so that the number of threads does not matter, nor does the group: both kinds of addition grow alike with the
  // field.
  static double cost(uint64_t others, uint32_t c) {
    const double b = static_cast<double>(uint64_t{1} << (c - 1));
    const double side = static_cast<double>(uint64_t{1} << (c / 2));
    return window_count(c) * (static_cast<double>(others) + 2 * b + 2.5 * 4 * side);
  }

  // The cheapest window for `others` scalars that needs no more than `bytes` for n points.
  static MsmPlan choose(uint64_t n, uint64_t others, unsigned threads, uint64_t bytes) {
    uint32_t best = 0;
    for (uint32_t c = min_window; c <= max_window; c++) {
      if (best && cost(others, c) >= cost(others, best)) continue;
      if (MsmPlan(n, threads, c).scratch_bytes() <= bytes) best = c;
    }
    return MsmPlan(n, threads, best ? best : min_window);
  }

  uint64_t all_buckets() const { return windows * buckets + 1; }  // the last one takes the scalars that are 1
  uint64_t max_entries() const { return windows * slab; }
  // Digits of a window, with a distance to the next one that is no power of two: a scalar's digits are written to all
  // windows at once, and would share one set of the first-level cache.
  uint64_t digit_pitch() const { return (slab + 2047) / 2048 * 2048 + 96; }
  uint64_t blocks() const { return (slab + block - 1) / block; }
  uint64_t max_parts() const { return 2 * ((max_entries() + min_chunk - 1) / min_chunk + 1); }

  // Regions of the scratch.
  struct Layout {
    uint64_t points, starts, entries, digits, others, blocks, part_points, part_buckets, sums, workers, worker_bytes,
        total;
  };

  // What a thread needs to add up `entries` points in segments.
  static uint64_t segment_bytes(uint64_t entries) {
    return round(entries * sizeof(Point)) + round(PairAdder<F>::scratch_bytes(entries)) + round(entries * 4) +
           round(entries * 12);
  }
  uint64_t worker_bytes() const {
    const uint64_t chunk = segment_bytes(2 * max_chunk);  // twice: a bucket's earlier sum takes part
    const uint64_t reduce = segment_bytes(buckets);
    return chunk > reduce ? chunk : reduce;
  }

  Layout layout() const {
    Layout l{};
    uint64_t at = 0;
    const auto take = [&at](uint64_t bytes) {
      const uint64_t here = at;
      at += round(bytes);
      return here;
    };
    l.points = take(all_buckets() * sizeof(Point));
    l.starts = take((all_buckets() + 2) * 4);
    l.entries = take(max_entries() * 4);
    l.digits = take(windows * digit_pitch() * 2);
    l.others = take(slab * 4);
    l.blocks = take((blocks() + 1) * 8);
    l.part_points = take(max_parts() * sizeof(Point));
    l.part_buckets = take(max_parts() * 4);
    l.sums = take(2 * windows * sizeof(Xyzz<F>));
    l.worker_bytes = worker_bytes();
    l.workers = take(threads * l.worker_bytes);
    l.total = at;
    return l;
  }
  uint64_t scratch_bytes() const { return layout().total; }

  static uint64_t round(uint64_t bytes) { return (bytes + 63) / 64 * 64; }
};

}  // namespace CUZK_PATH
}  // namespace cuzk
