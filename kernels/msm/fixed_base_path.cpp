// Multiples of one point for the C interface.
#include "../capi/path_functions.hpp"
#include "../capi/select.hpp"
#include "fixed_base.hpp"

namespace cuzk {
namespace CUZK_PATH {

namespace {

template <class F>
auto with_base(int curve, int group, uint32_t window, F &&f) {
  return with_group(curve, group, [&](auto c, auto field) {
    return f(FixedBase<typename decltype(c)::type, typename decltype(field)::type>(window));
  });
}

}  // namespace

uint64_t fixed_base_table_bytes(int curve, int group, uint32_t window) {
  return with_base(curve, group, window, [](const auto &base) { return base.table_bytes(); });
}

uint64_t fixed_base_scratch_bytes(int curve, int group, uint32_t window, unsigned threads) {
  return with_base(curve, group, window, [&](const auto &base) { return threads * base.worker_bytes(); });
}

int fixed_base_table(int curve, int group, const void *point, uint32_t window, void *table, void *scratch, Run &run) {
  return with_base(curve, group, window, [&](const auto &base) -> int {
    using Base = std::decay_t<decltype(base)>;
    using Point = typename Base::Point;
    SpanTimer span(run, CUZK_SPAN_MSM_ACCUMULATE);
    Point *entries = static_cast<Point *>(table);
    base.fill_bases(Point::load(point), entries);
    const bool done = run.parallel(base.windows(), [&](size_t w, unsigned slot) {
      base.fill_window(entries + w * base.half(), static_cast<char *>(scratch) + slot * base.worker_bytes());
    });
    return done ? CUZK_OK : CUZK_E_CANCELLED;
  });
}

int fixed_base_multiply(int curve, int group, const void *table, uint32_t window, const void *scalars, uint64_t n, void *out,
                        void *scratch, uint64_t *first_bad, Run &run) {
  return with_base(curve, group, window, [&](const auto &base) -> int {
    using Base = std::decay_t<decltype(base)>;
    using Point = typename Base::Point;
    SpanTimer span(run, CUZK_SPAN_MSM_ACCUMULATE);
    const char *s = static_cast<const char *>(scalars);
    LowestIndex bad;
    const bool done = run.ranges(n, Base::batch, [&](uint64_t begin, uint64_t end, unsigned slot) {
      const bool fine = base.multiply(static_cast<const Point *>(table), s + begin * sizeof(Scalar), end - begin,
                                      static_cast<char *>(out) + begin * sizeof(Point),
                                      static_cast<char *>(scratch) + slot * base.worker_bytes());
      if (fine) return;
      for (uint64_t i = begin; i < end; i++) {
        if (Scalar::load(s, i).template is_below_order<typename Base::Fr>()) continue;
        bad.report(i);
        return;
      }
    });
    if (!done) return CUZK_E_CANCELLED;
    if (!bad.any()) return CUZK_OK;
    *first_bad = bad.value();
    return CUZK_E_DATA;
  });
}

}  // namespace CUZK_PATH
}  // namespace cuzk
