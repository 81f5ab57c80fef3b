// Sums of segments of points: each segment lies in consecutive places and ends as one point in its first.
#pragma once
#include "plan.hpp"

namespace cuzk {
namespace CUZK_PATH {

struct Segment {
  uint32_t begin, end;  // places
  uint32_t bucket;
};

// One thread's room, cut from the caller's scratch, for up to `capacity` points.
//
// A round adds neighbours within every segment, all in one batch; places halve their distance in each round, so that
// nothing is moved and no pair depends on another. One bucket that takes everything is thus as quick as many small
// ones.
template <class F>
class SegmentAdder {
 public:
  using Point = Affine<F>;

  SegmentAdder(char *scratch, uint64_t capacity)
      : points_(reinterpret_cast<Point *>(scratch)),
        adder_(scratch + round(capacity * sizeof(Point)), capacity),
        index_(reinterpret_cast<uint32_t *>(scratch + round(capacity * sizeof(Point)) +
                                            round(PairAdder<F>::scratch_bytes(capacity)))),
        segments_(reinterpret_cast<Segment *>(reinterpret_cast<char *>(index_) + round(capacity * 4))) {}

  void clear() { used_ = count_ = 0; }
  void open(uint32_t bucket) { segments_[count_] = {used_, used_, bucket}; }
  void put(const Point &p) { points_[used_++] = p; }
  void close() { segments_[count_++].end = used_; }

  void sum() {
    for (uint32_t stride = 1;; stride *= 2) {
      uint32_t pairs = 0;
      for (uint32_t s = 0; s < count_; s++) {
        const uint32_t end = segments_[s].end;
        for (uint32_t i = segments_[s].begin; i + stride < end; i += 2 * stride) index_[pairs++] = i;
      }
      if (pairs == 0) return;
      adder_.add(points_, index_, pairs, stride);
    }
  }

  // points()[i] += points()[i + stride] for i = outer * step + inner, outer < outers, inner < inners.
  void add_grid(uint32_t outers, uint32_t step, uint32_t inners, uint32_t stride) {
    uint32_t pairs = 0;
    for (uint32_t outer = 0; outer < outers; outer++)
      for (uint32_t inner = 0; inner < inners; inner++) index_[pairs++] = outer * step + inner;
    adder_.add(points_, index_, pairs, stride);
  }

  uint32_t count() const { return count_; }
  const Segment &segment(uint32_t i) const { return segments_[i]; }
  const Point &result(uint32_t i) const { return points_[segments_[i].begin]; }
  Point *points() { return points_; }

 private:
  static uint64_t round(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

  Point *points_;
  PairAdder<F> adder_;
  uint32_t *index_;
  Segment *segments_;
  uint32_t used_ = 0, count_ = 0;
};

}  // namespace CUZK_PATH
}  // namespace cuzk
