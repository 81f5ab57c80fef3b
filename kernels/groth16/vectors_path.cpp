// The vectors of a Groth16 proof: a = A w, b = B w, c = a o b from section 4 of a zkey, and the scalars of the H query.
#include "../capi/path_functions.hpp"
#include "../capi/select.hpp"
#include "entries.hpp"

namespace cuzk {
namespace CUZK_PATH {

namespace {

constexpr uint64_t piece = 2048;

// First position in [0, n] whose entry (through order) belongs to `row` or a later one.
uint64_t lower_bound(const void *entries, const uint32_t *order, uint64_t n, uint64_t row) {
  uint64_t low = 0, high = n;
  while (low < high) {
    const uint64_t middle = (low + high) / 2;
    if (EntryHead::at(entries, order ? order[middle] : middle).constraint < row)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Rows [begin, end): the entries of a row stand together, so that nobody else writes here.
template <class Fr>
void evaluate_rows(const void *entries, uint64_t n, const uint32_t *order, const char *w, uint64_t begin, uint64_t end,
                   Fr *a, Fr *b, Fr *c) {
  uint64_t k = lower_bound(entries, order, n, begin);
  for (uint64_t row = begin; row < end; row++) {
    Fr sums[2] = {Fr::zero(), Fr::zero()};
    for (; k < n; k++) {
      const uint64_t number = order ? order[k] : k;
      const EntryHead head = EntryHead::at(entries, number);
      if (head.constraint != row) break;
      const Fr value = Fr::load(w + head.signal * Fr::bytes);
      if (value.is_zero()) continue;
      // coefficient R^2 times the plain value, divided by R: the product in Montgomery form.
      sums[head.matrix & 1] += Fr::load(EntryHead::coefficient(entries, number)) * value;
    }
    a[row] = sums[0];
    b[row] = sums[1];
    if (c) c[row] = sums[0] * sums[1];
  }
}

}  // namespace

int coefficients_check(int curve, const void *entries, uint64_t n, uint64_t n_vars, uint64_t domain, int *sorted,
                       uint64_t nonzeros[2], uint64_t *first_bad, Run &run) {
  return with_fr(curve, [&](auto type) -> int {
    using Fr = typename decltype(type)::type;
    SpanTimer span(run, CUZK_SPAN_CHECK);
    LowestIndex bad;
    std::atomic<uint64_t> of_b{0};
    std::atomic<bool> in_order{true};
    const bool done = run.ranges(n, piece, [&](uint64_t begin, uint64_t end, unsigned) {
      uint64_t count_b = 0;
      uint32_t before = begin ? EntryHead::at(entries, begin - 1).constraint : 0;
      for (uint64_t i = begin; i < end; i++) {
        const EntryHead head = EntryHead::at(entries, i);
        if (head.matrix > 1 || head.constraint >= domain || head.signal >= n_vars ||
            !Fr::load(EntryHead::coefficient(entries, i)).is_reduced()) {
          bad.report(i);
          return;
        }
        count_b += head.matrix;
        if (head.constraint < before) in_order.store(false, std::memory_order_relaxed);
        before = head.constraint;
      }
      of_b += count_b;
    });
    if (!done) return CUZK_E_CANCELLED;
    if (bad.any()) {
      *first_bad = bad.value();
      return CUZK_E_DATA;
    }
    *sorted = in_order;
    nonzeros[0] = n - of_b;
    nonzeros[1] = of_b;
    return CUZK_OK;
  });
}

int evaluate(int curve, const void *entries, uint64_t n, const uint32_t *order, const void *w, uint64_t domain, void *a,
             void *b, void *c, Run &run) {
  return with_fr(curve, [&](auto type) -> int {
    using Fr = typename decltype(type)::type;
    SpanTimer span(run, CUZK_SPAN_SPMV);
    const bool done = run.ranges(domain, piece, [&](uint64_t begin, uint64_t end, unsigned) {
      evaluate_rows<Fr>(entries, n, order, static_cast<const char *>(w), begin, end, static_cast<Fr *>(a),
                        static_cast<Fr *>(b), static_cast<Fr *>(c));
    });
    return done ? CUZK_OK : CUZK_E_CANCELLED;
  });
}

int h_join(int curve, void *a, const void *b, const void *c, uint64_t n, Run &run) {
  return with_fr(curve, [&](auto type) -> int {
    using Fr = typename decltype(type)::type;
    SpanTimer span(run, CUZK_SPAN_POINTWISE);
    Fr *x = static_cast<Fr *>(a);
    const Fr *y = static_cast<const Fr *>(b), *z = static_cast<const Fr *>(c);
    const bool done = run.ranges(n, piece, [&](uint64_t begin, uint64_t end, unsigned) {
      for (uint64_t i = begin; i < end; i++) x[i] = (x[i] * y[i] - z[i]).from_mont();
    });
    return done ? CUZK_OK : CUZK_E_CANCELLED;
  });
}

}  // namespace CUZK_PATH
}  // namespace cuzk
