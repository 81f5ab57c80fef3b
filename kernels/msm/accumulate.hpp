// Points into buckets, in tasks of equally many entries whatever buckets they belong to.
#pragma once
#include "../capi/run.hpp"
#include "segments.hpp"

namespace cuzk {
namespace CUZK_PATH {

// A task adds up the entries of one piece of the sorted list. A bucket that lies in one piece is done then; of a bucket
// that several pieces share each gives a part, and the parts, again a list sorted by bucket, are added up at the end.
template <class Plan>
class Accumulator {
 public:
  using Point = typename Plan::Point;
  using F = decltype(Point::x);

  // starts, entries: of DigitSorter. The first slab finds its buckets in any state, later ones add to them.
  Accumulator(const Plan &plan, const uint32_t *starts, const uint32_t *entries, Point *buckets, Point *part_points,
              uint32_t *part_buckets, char *workers)
      : plan_(plan), starts_(starts), entries_(entries), buckets_(buckets), part_points_(part_points),
        part_buckets_(part_buckets), workers_(workers) {}

  // points: the slab's; total: entries. False when cancelled.
  bool add(const char *points, uint64_t total, bool first_slab, Run &run) {
    const uint64_t chunk = chunk_size(total);
    const uint64_t tasks = (total + chunk - 1) / chunk;
    for (uint64_t i = 0; i < 2 * tasks; i++) part_buckets_[i] = no_bucket;
    if (first_slab && !clear(run)) return false;
    const bool done = run.parallel(tasks, [&](size_t task, unsigned slot) {
      const uint64_t begin = task * chunk, end = begin + chunk < total ? begin + chunk : total;
      add_chunk(points, task, begin, end, first_slab, slot);
    });
    if (!done) return false;
    join_parts(2 * tasks);
    return !run.cancelled();
  }

 private:
  static constexpr uint32_t no_bucket = UINT32_MAX;
  static constexpr uint64_t ahead = 12;  // entries whose points are fetched in advance

  // A few tasks a thread, so that they end together.
  uint64_t chunk_size(uint64_t total) const {
    const uint64_t even = total / (4 * plan_.threads) + 1;
    return even < Plan::min_chunk ? Plan::min_chunk : even < Plan::max_chunk ? even : Plan::max_chunk;
  }

  bool clear(Run &run) {
    return run.ranges(plan_.all_buckets(), 1 << 14, [&](uint64_t begin, uint64_t end, unsigned) {
      memset(static_cast<void *>(buckets_ + begin), 0, (end - begin) * sizeof(Point));
    });
  }

  SegmentAdder<F> worker(unsigned slot) const {
    return SegmentAdder<F>(workers_ + slot * plan_.worker_bytes(), 2 * Plan::max_chunk);
  }

  void add_chunk(const char *points, size_t task, uint64_t begin, uint64_t end, bool first_slab, unsigned slot) {
    SegmentAdder<F> adder = worker(slot);
    adder.clear();
    uint64_t bucket = bucket_of(begin);
    for (uint64_t i = begin; i < end; bucket++) {
      const uint64_t bucket_end = starts_[bucket + 1];
      if (bucket_end <= i) continue;  // empty
      const bool whole = starts_[bucket] >= begin && bucket_end <= end;
      adder.open(static_cast<uint32_t>(bucket));
      bool empty = true;
      if (whole && !first_slab) {
        adder.put(buckets_[bucket]);
        empty = false;
      }
      const uint64_t stop = bucket_end < end ? bucket_end : end;
      for (; i < stop; i++) {
        if (i + ahead < end) fetch(points + (entries_[i + ahead] >> 1) * sizeof(Point));
        const Point p = Point::load(points + (entries_[i] >> 1) * sizeof(Point));
        if (p.is_infinity()) continue;  // up to half of a B query: variables that stand in no row of B
        adder.put({p.x, p.y.negated_if(entries_[i] & 1)});  // a branch would be a coin toss
        empty = false;
      }
      if (empty) adder.put(Point::infinity());
      adder.close();
    }
    adder.sum();
    for (uint32_t s = 0; s < adder.count(); s++) {
      const uint64_t b = adder.segment(s).bucket;
      if (starts_[b] >= begin && starts_[b + 1] <= end) {
        buckets_[b] = adder.result(s);
        continue;
      }
      const uint64_t part = 2 * task + (s == 0 ? 0 : 1);  // only the first and the last can be shared
      part_points_[part] = adder.result(s);
      part_buckets_[part] = static_cast<uint32_t>(b);
    }
  }

  static void fetch(const char *p) {
    for (size_t i = 0; i < sizeof(Point); i += 64) __builtin_prefetch(p + i);
  }

  // The bucket of entry i.
  uint64_t bucket_of(uint64_t i) const {
    uint64_t low = 0, high = plan_.all_buckets();  // starts[low] <= i < starts[high]
    while (high - low > 1) {
      const uint64_t middle = (low + high) / 2;
      if (starts_[middle] <= i)
        low = middle;
      else
        high = middle;
    }
    return low;
  }

  void join_parts(uint64_t parts) {
    SegmentAdder<F> adder = worker(0);
    for (uint64_t i = 0; i < parts;) {
      adder.clear();
      uint64_t room = Plan::max_chunk;
      while (i < parts && room > 0) {
        const uint32_t bucket = part_buckets_[i];
        if (bucket == no_bucket) {
          i++;
          continue;
        }
        adder.open(bucket);
        // What earlier slabs, or an earlier turn of this loop, left in the bucket; the first slab cleared them.
        adder.put(buckets_[bucket]);
        for (; i < parts && room > 0 && (part_buckets_[i] == bucket || part_buckets_[i] == no_bucket); i++) {
          if (part_buckets_[i] == no_bucket) continue;
          adder.put(part_points_[i]);
          room--;
        }
        adder.close();
      }
      adder.sum();
      for (uint32_t s = 0; s < adder.count(); s++) buckets_[adder.segment(s).bucket] = adder.result(s);
    }
  }

  const Plan &plan_;
  const uint32_t *starts_, *entries_;
  Point *buckets_, *part_points_;
  uint32_t *part_buckets_;
  char *workers_;
};

}  // namespace CUZK_PATH
}  // namespace cuzk
