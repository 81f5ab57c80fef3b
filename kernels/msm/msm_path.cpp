// Multi-scalar multiplication: Pippenger's bucket method.
//
//  1. Scalars 0 are left out, scalars 1 go to a bucket of their own, all others are cut into signed digits of c bits
//     (digits.hpp); c minimises a count of additions (plan.hpp).
//  2. For each window the points' numbers are sorted by digit.
//  3. The sorted lists of all windows, one after the other, are cut in pieces of equal length, and each thread adds up
//  the
//     points of a piece bucket by bucket in batches of affine additions that share an inversion (accumulate.hpp).
//  4. Each window's buckets are summed (reduce.hpp), and the windows joined by doublings.
// Long inputs go through 1 to 3 in slabs of 2^20 points, which bounds the memory.
//
// Pippenger, "On the Evaluation of Powers and Monomials"; shared inversions: Montgomery, "Speeding the Pollard and
// Elliptic Curve Methods of Factorization", section 10.3.1; XYZZ coordinates: explicit-formulas database.
#include "../capi/path_functions.hpp"
#include "../capi/select.hpp"
#include "accumulate.hpp"
#include "digits.hpp"
#include "reduce.hpp"

namespace cuzk {
namespace CUZK_PATH {

namespace {

// Up to here plain double-and-add with shared doublings is quicker.
constexpr uint64_t few = 4;

template <class F>
Xyzz<F> multiply_few(const char *points, const void *scalars, uint64_t n) {
  Xyzz<F> r = Xyzz<F>::infinity();
  for (int bit = 255; bit >= 0; bit--) {
    r = r.dbl();
    for (uint64_t i = 0; i < n; i++)
      if (Scalar::load(scalars, i).v[bit / 64] >> (bit % 64) & 1)
        r.add(Affine<F>::load(points + i * sizeof(Affine<F>)));
  }
  return r;
}

// Scalars that are neither 0 nor 1.
bool count_others(const void *scalars, uint64_t n, uint64_t *others, Run &run) {
  std::atomic<uint64_t> count{0};
  const bool done = run.ranges(n, 1 << 15, [&](uint64_t begin, uint64_t end, unsigned) {
    uint64_t c = 0;
    for (uint64_t i = begin; i < end; i++) c += Scalar::load(scalars, i).kind() == ScalarKind::other;
    count += c;
  });
  *others = count;
  return done;
}

template <class Plan, class F>
class Msm {
 public:
  using Point = Affine<F>;

  Msm(const Plan &plan, char *scratch, Run &run)
      : plan_(plan), layout_(plan.layout()), scratch_(scratch), run_(run),
        sorter_(plan_, at<uint32_t>(layout_.starts), at<uint32_t>(layout_.entries), at<uint16_t>(layout_.digits),
                at<uint32_t>(layout_.others), at<uint32_t>(layout_.blocks)),
        accumulator_(plan_, at<uint32_t>(layout_.starts), at<uint32_t>(layout_.entries), at<Point>(layout_.points),
                     at<Point>(layout_.part_points), at<uint32_t>(layout_.part_buckets), scratch + layout_.workers) {}

  int compute(const char *points, const char *scalars, Xyzz<F> &out) {
    for (uint64_t begin = 0, slab = 0; begin < plan_.n; begin += plan_.slab, slab++) {
      const uint64_t count = plan_.n - begin < plan_.slab ? plan_.n - begin : plan_.slab;
      const uint32_t number = static_cast<uint32_t>(slab);
      {
        SpanTimer span(run_, CUZK_SPAN_MSM_DIGITS, number);
        const int status = sorter_.sort(scalars + begin * sizeof(Scalar), count, run_);
        if (status != CUZK_OK) return status;
      }
      SpanTimer span(run_, CUZK_SPAN_MSM_ACCUMULATE, number);
      if (!accumulator_.add(points + begin * sizeof(Point), sorter_.total(), slab == 0, run_)) return CUZK_E_CANCELLED;
    }
    return reduce(out) ? CUZK_OK : CUZK_E_CANCELLED;
  }

 private:
  template <class T>
  T *at(uint64_t offset) const {
    return reinterpret_cast<T *>(scratch_ + offset);
  }

  bool reduce(Xyzz<F> &out) {
    SpanTimer span(run_, CUZK_SPAN_MSM_REDUCE);
    const Point *buckets = at<Point>(layout_.points);
    Xyzz<F> *sums = at<Xyzz<F>>(layout_.sums);
    const bool done = run_.parallel(2 * plan_.windows, [&](size_t task, unsigned slot) {
      WindowReducer<F> reducer(buckets + task / 2 * plan_.buckets, plan_.window - 1,
                               scratch_ + layout_.workers + slot * layout_.worker_bytes);
      sums[task] = task % 2 ? reducer.columns() : reducer.rows();
    });
    if (!done) return false;
    out = Xyzz<F>::infinity();
    for (uint32_t w = plan_.windows; w-- > 0;) {
      for (uint32_t i = 0; i < plan_.window; i++) out = out.dbl();
      out.add(sums[2 * w]);
      out.add(sums[2 * w + 1]);
    }
    out.add(buckets[plan_.all_buckets() - 1]);
    return true;
  }

  const Plan plan_;
  const typename Plan::Layout layout_;
  char *scratch_;
  Run &run_;
  DigitSorter<Plan> sorter_;
  Accumulator<Plan> accumulator_;
};

}  // namespace

// What the best window for n scalars, none of them 0 or 1, needs; with fewer others a window is chosen that fits.
uint64_t msm_scratch_bytes(int curve, int group, uint64_t n, unsigned threads) {
  return with_group(curve, group, [&](auto c, auto field) -> uint64_t {
    using Plan = MsmPlan<typename decltype(c)::type, typename decltype(field)::type>;
    return Plan::choose(n, n, threads, UINT64_MAX).scratch_bytes();
  });
}

int msm(int curve, int group, const void *points, const void *scalars, uint64_t n, void *out, void *scratch,
        uint64_t scratch_bytes, Run &run) {
  return with_group(curve, group, [&](auto c, auto field) -> int {
    using F = typename decltype(field)::type;
    using Plan = MsmPlan<typename decltype(c)::type, F>;
    const char *p = static_cast<const char *>(points), *s = static_cast<const char *>(scalars);
    Xyzz<F> sum = Xyzz<F>::infinity();
    if (n <= few) {
      SpanTimer span(run, CUZK_SPAN_MSM_ACCUMULATE);
      sum = multiply_few<F>(p, s, n);
    } else {
      uint64_t others = 0;
      if (!count_others(s, n, &others, run)) return CUZK_E_CANCELLED;
      const Plan plan = Plan::choose(n, others, run.threads(), scratch_bytes);
      Msm<Plan, F> work(plan, static_cast<char *>(scratch), run);
      const int status = work.compute(p, s, sum);
      if (status != CUZK_OK) return status;
    }
    sum.to_affine().store(out);
    return CUZK_OK;
  });
}

int msm_reference(int curve, int group, const void *points, const void *scalars, uint64_t n, void *out) {
  return with_group(curve, group, [&](auto, auto field) -> int {
    using F = typename decltype(field)::type;
    Xyzz<F> sum = Xyzz<F>::infinity();
    for (uint64_t i = 0; i < n; i++) {
      const Affine<F> p = Affine<F>::load(static_cast<const char *>(points) + i * sizeof(Affine<F>));
      sum.add(multiply(p, Scalar::load(scalars, i).v, 4));
    }
    sum.to_affine().store(out);
    return CUZK_OK;
  });
}

}  // namespace CUZK_PATH
}  // namespace cuzk
