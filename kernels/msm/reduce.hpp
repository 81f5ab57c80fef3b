// Buckets into a window's sum, sum over k of (k + 1) bucket[k].
//
// With k = 2^s row + column, the sum is 2^s sum(row R[row]) + sum((column + 1) C[column]), R and C the sums of the rows
// and of the columns. These are plain sums, made in a few large batches of affine additions; only the weighted sums of
// the 2^s columns and as many rows are running sums in XYZZ.
#pragma once
#include "segments.hpp"

namespace cuzk {
namespace CUZK_PATH {

template <class F>
class WindowReducer {
 public:
  using Point = Affine<F>;

  WindowReducer(const Point *buckets, uint32_t log_buckets, char *scratch)
      : buckets_(buckets), columns_(1u << (log_buckets / 2)), rows_(1u << (log_buckets - log_buckets / 2)),
        adder_(scratch, uint64_t{1} << log_buckets) {}

  // 2^s sum(row R[row])
  Xyzz<F> rows() {
    copy();
    for (uint32_t stride = columns_ / 2; stride > 0; stride /= 2) adder_.add_grid(rows_, columns_, stride, stride);
    Xyzz<F> sum = Xyzz<F>::infinity(), weighted = Xyzz<F>::infinity();
    for (uint32_t row = rows_ - 1; row > 0; row--) {
      sum.add(adder_.points()[row * columns_]);
      weighted.add(sum);
    }
    for (uint32_t c = columns_; c > 1; c /= 2) weighted = weighted.dbl();
    return weighted;
  }

  // sum((column + 1) C[column])
  Xyzz<F> columns() {
    copy();
    for (uint32_t stride = rows_ / 2; stride > 0; stride /= 2)
      adder_.add_grid(stride, columns_, columns_, stride * columns_);
    Xyzz<F> sum = Xyzz<F>::infinity(), weighted = Xyzz<F>::infinity();
    for (uint32_t column = columns_; column-- > 0;) {
      sum.add(adder_.points()[column]);
      weighted.add(sum);
    }
    return weighted;
  }

 private:
  void copy() { memcpy(static_cast<void *>(adder_.points()), buckets_, uint64_t{rows_} * columns_ * sizeof(Point)); }

  const Point *buckets_;
  uint32_t columns_, rows_;
  SegmentAdder<F> adder_;
};

}  // namespace CUZK_PATH
}  // namespace cuzk
