// Many multiples of one point: a table of its multiples, one window of each scalar after the other.
//
// Entry d - 1 of window w is d 2^(c w) P, for d from 1 to 2^(c-1); a scalar is the sum of its signed digits (digits.hpp), so
// that a multiple costs one affine addition a window. Scalars are taken in batches whose additions share an inversion.
//
// Brickell, Gordon, McCurley and Wilson, "Fast Exponentiation with Precomputation"; the batches as in batch_add.hpp.
#pragma once
#include "adder.hpp"
#include "digits.hpp"

namespace cuzk {
namespace CUZK_PATH {

template <class Curve, class F>
class FixedBase {
 public:
  using Point = Affine<F>;
  using Fr = typename Curve::Fr;
  static constexpr uint64_t batch = sizeof(Point) <= 128 ? 1024 : 512;  // accumulators, addends and inverses in 512 KiB

  explicit FixedBase(uint32_t window) : window_(window), windows_(Fr::bits / window + 1), cutter_(window, windows_) {}

  uint32_t windows() const { return windows_; }
  uint64_t half() const { return uint64_t{1} << (window_ - 1); }
  uint64_t table_bytes() const { return windows_ * half() * sizeof(Point); }
  uint64_t worker_bytes() const {
    return 2 * batch * sizeof(Point) + PairAdder<F>::scratch_bytes(batch) + round(batch * windows_ * sizeof(uint16_t)) +
           batch * sizeof(uint32_t);
  }

  // 2^(c w) P for each window, into the first entry of each.
  void fill_bases(const Point &p, Point *table) const {
    Xyzz<F> x = Xyzz<F>::from(p);
    for (uint32_t w = 0; w < windows_; w++) {
      table[w * half()] = x.to_affine();
      for (uint32_t i = 0; i < window_; i++) x = x.dbl();
    }
  }

  // The multiples of one window, from its first entry: d = 1..m give d = m + 1..2m by adding m.
  void fill_window(Point *entries, void *scratch) const {
    const Worker t = worker(scratch);
    for (uint64_t known = 1; known < half(); known *= 2) {
      for (uint64_t begin = 0; begin < known; begin += batch) {
        const uint64_t count = known - begin < batch ? known - begin : batch;
        for (uint64_t i = 0; i < count; i++) {
          t.points[i] = entries[begin + i];
          t.points[batch + i] = entries[known - 1];
          t.index[i] = static_cast<uint32_t>(i);
        }
        PairAdder<F>(t.adder, batch).add(t.points, t.index, count, batch);
        memcpy(entries + known + begin, t.points, count * sizeof(Point));
      }
    }
  }

  // out[i] = scalars[i] P for at most `batch` scalars. False when one of them is not below r.
  bool multiply(const Point *table, const char *scalars, uint64_t n, char *out, void *scratch) const {
    const Worker t = worker(scratch);
    for (uint64_t i = 0; i < n; i++) {
      const Scalar s = Scalar::load(scalars, i);
      if (!s.template is_below_order<Fr>()) return false;
      cutter_.cut(s, t.digits + i, batch);
      t.points[i] = Point::infinity();
    }
    for (uint32_t w = 0; w < windows_; w++)
      PairAdder<F>(t.adder, batch).add(t.points, t.index, gather(table + w * half(), t.digits + w * batch, n, t), batch);
    for (uint64_t i = 0; i < n; i++) t.points[i].store(out + i * sizeof(Point));
    return true;
  }

 private:
  struct Worker {
    Point *points;  // accumulators, then what is added to them
    void *adder;
    uint16_t *digits;
    uint32_t *index;
  };

  static uint64_t round(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

  Worker worker(void *scratch) const {
    char *p = static_cast<char *>(scratch);
    Worker t;
    t.points = reinterpret_cast<Point *>(p);
    p += 2 * batch * sizeof(Point);
    t.adder = p;
    p += PairAdder<F>::scratch_bytes(batch);
    t.digits = reinterpret_cast<uint16_t *>(p);
    p += round(batch * windows_ * sizeof(uint16_t));
    t.index = reinterpret_cast<uint32_t *>(p);
    return t;
  }

  // Lays the entries that the digits ask for beside their accumulators; the number of digits that are not 0.
  size_t gather(const Point *entries, const uint16_t *digits, uint64_t n, const Worker &t) const {
    constexpr uint64_t ahead = 16;  // the table lies beyond the nearest cache
    const int32_t middle = static_cast<int32_t>(half());
    size_t count = 0;
    for (uint64_t i = 0; i < n; i++) {
      if (i + ahead < n) prefetch(entries, digits[i + ahead] - middle);
      const int32_t digit = digits[i] - middle;
      if (digit == 0) continue;
      const Point &entry = entries[(digit < 0 ? -digit : digit) - 1];
      t.points[batch + i] = digit < 0 ? -entry : entry;
      t.index[count++] = static_cast<uint32_t>(i);
    }
    return count;
  }

  static CUZK_INLINE void prefetch(const Point *entries, int32_t digit) {
    if (digit == 0) return;
    const char *p = reinterpret_cast<const char *>(entries + (digit < 0 ? -digit : digit) - 1);
    for (size_t at = 0; at < sizeof(Point); at += 64) __builtin_prefetch(p + at);
  }

  uint32_t window_, windows_;
  DigitCutter cutter_;
};

}  // namespace CUZK_PATH
}  // namespace cuzk
