// Point operations and checks of the C interface.
#include "../capi/path_functions.hpp"
#include "../capi/select.hpp"
#include "subgroup.hpp"

namespace cuzk {
namespace CUZK_PATH {

namespace {

template <class F>
Affine<F> apply(int op, const Affine<F> &p, const void *b, uint64_t i) {
  const char *other = static_cast<const char *>(b);
  switch (op) {
    case CUZK_POINT_ADD: {
      Xyzz<F> r = Xyzz<F>::from(p);
      r.add(Affine<F>::load(other + i * sizeof(Affine<F>)));
      return r.to_affine();
    }
    case CUZK_POINT_DOUBLE: return Xyzz<F>::dbl(p).to_affine();
    case CUZK_POINT_NEG: return -p;
    default: {
      uint64_t k[4];
      memcpy(k, other + i * sizeof k, sizeof k);
      return multiply(p, k, 4).to_affine();
    }
  }
}

template <class Test, class F>
int fault_of(const Affine<F> &p, const F &b, const Test *has_order_r) {
  if (!p.x.is_reduced() || !p.y.is_reduced()) return CUZK_POINT_COORDINATE;
  if (!p.on_curve(b)) return CUZK_POINT_OFF_CURVE;
  if (has_order_r && !(*has_order_r)(p)) return CUZK_POINT_SUBGROUP;
  return CUZK_POINT_OK;
}

}  // namespace

int point_op(int curve, int group, int op, void *out, const void *a, const void *b, uint64_t n, Run &run) {
  return with_group(curve, group, [&](auto, auto field) -> int {
    using F = typename decltype(field)::type;
    constexpr size_t size = sizeof(Affine<F>);
    const bool done = run.ranges(n, 16, [&](uint64_t begin, uint64_t end, unsigned) {
      for (uint64_t i = begin; i < end; i++)
        apply(op, Affine<F>::load(static_cast<const char *>(a) + i * size), b, i)
            .store(static_cast<char *>(out) + i * size);
    });
    return done ? CUZK_OK : CUZK_E_CANCELLED;
  });
}

int points_check(int curve, int group, const void *points, uint64_t n, int check_subgroup, uint64_t *first_bad,
                 int *fault, Run &run) {
  return with_group(curve, group, [&](auto c, auto field) -> int {
    using Curve = typename decltype(c)::type;
    using F = typename decltype(field)::type;
    SpanTimer span(run, CUZK_SPAN_CHECK);
    using Test = SubgroupTest<Curve, F>;
    const Test test;
    const Test *subgroup = check_subgroup && !Test::always ? &test : nullptr;
    const F b = GroupConstant<Curve, F>::b();
    const char *p = static_cast<const char *>(points);
    LowestIndex bad;
    const bool done = run.ranges(n, subgroup ? 32 : 2048, [&](uint64_t begin, uint64_t end, unsigned) {
      for (uint64_t i = begin; i < end && i < bad.value(); i++) {
        if (fault_of(Affine<F>::load(p + i * sizeof(Affine<F>)), b, subgroup) == CUZK_POINT_OK) continue;
        bad.report(i);
        return;
      }
    });
    if (!done) return CUZK_E_CANCELLED;
    *fault = CUZK_POINT_OK;
    if (!bad.any()) return CUZK_OK;
    *first_bad = bad.value();
    *fault = fault_of(Affine<F>::load(p + bad.value() * sizeof(Affine<F>)), b, subgroup);
    return CUZK_E_DATA;
  });
}

int points_present(int curve, int group, const void *points, uint64_t n, uint64_t *present, Run &run) {
  return with_group(curve, group, [&](auto, auto field) -> int {
    using F = typename decltype(field)::type;
    constexpr size_t words = sizeof(Affine<F>) / sizeof(uint64_t);
    const char *p = static_cast<const char *>(points);
    std::atomic<uint64_t> total{0};
    const bool done = run.ranges(n, 8192, [&](uint64_t begin, uint64_t end, unsigned) {
      uint64_t found = 0;
      for (uint64_t i = begin; i < end; i++) {
        uint64_t x[words], any = 0;
        memcpy(x, p + i * sizeof x, sizeof x);
        for (uint64_t word : x) any |= word;
        found += any != 0;
      }
      total += found;
    });
    if (!done) return CUZK_E_CANCELLED;
    *present = total;
    return CUZK_OK;
  });
}

}  // namespace CUZK_PATH
}  // namespace cuzk
