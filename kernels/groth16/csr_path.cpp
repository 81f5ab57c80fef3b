// Constraint systems as compressed rows: their check, and the vectors a = A w, b = B w, c = C w.
#include <string.h>

#include <algorithm>
#include <vector>

#include "../capi/path_functions.hpp"
#include "../capi/select.hpp"

namespace cuzk {
namespace CUZK_PATH {

namespace {

constexpr uint64_t piece = 1024;

uint32_t load_u32(const void *p, uint64_t i) {
  uint32_t v;
  memcpy(&v, static_cast<const char *>(p) + 4 * i, sizeof v);
  return v;
}

template <class Fr>
Fr value_at(const cuzk_csr &m, uint64_t k) {
  return Fr::load(static_cast<const char *>(m.values) + k * Fr::bytes);
}

void set_bit(unsigned char *bits, uint32_t i) {
  const unsigned char bit = static_cast<unsigned char>(1u << (i % 8));
  if (!(__atomic_load_n(bits + i / 8, __ATOMIC_RELAXED) & bit)) __atomic_fetch_or(bits + i / 8, bit, __ATOMIC_RELAXED);
}

// The bits of the columns whose coefficients in this row do not add up to zero.
template <class Fr>
void mark_row(const cuzk_csr &m, uint64_t begin, uint64_t end, unsigned char *bits) {
  bool ascending = true;
  for (uint64_t k = begin + 1; k < end && ascending; k++)
    ascending = load_u32(m.columns, k - 1) < load_u32(m.columns, k);
  if (ascending) {
    for (uint64_t k = begin; k < end; k++)
      if (!value_at<Fr>(m, k).is_zero()) set_bit(bits, load_u32(m.columns, k));
    return;
  }
  std::vector<std::pair<uint32_t, uint64_t>> terms;
  for (uint64_t k = begin; k < end; k++) terms.emplace_back(load_u32(m.columns, k), k);
  std::sort(terms.begin(), terms.end());
  for (size_t i = 0; i < terms.size();) {
    const uint32_t column = terms[i].first;
    Fr sum = Fr::zero();
    for (; i < terms.size() && terms[i].first == column; i++) sum += value_at<Fr>(m, terms[i].second);
    if (!sum.is_zero()) set_bit(bits, column);
  }
}

template <class Fr>
Fr row_sum(const cuzk_csr &m, uint64_t row, const char *w) {
  const uint64_t begin = load_u32(m.rows, row), end = load_u32(m.rows, row + 1);
  Fr sum = Fr::zero();
  for (uint64_t k = begin; k < end; k++) {
    const Fr value = Fr::load(w + uint64_t{load_u32(m.columns, k)} * Fr::bytes);
    if (!value.is_zero()) sum += value_at<Fr>(m, k) * value;  // Montgomery times plain is plain
  }
  return sum.to_mont();
}

}  // namespace

int csr_check(int curve, const cuzk_csr *m, uint64_t rows, uint64_t n_vars, void *present, int *fault,
              uint64_t *first_bad, Run &run) {
  return with_fr(curve, [&](auto type) -> int {
    using Fr = typename decltype(type)::type;
    SpanTimer span(run, CUZK_SPAN_CHECK);
    LowestIndex bad_row, bad_term;
    if (load_u32(m->rows, 0) != 0) bad_row.report(0);
    if (load_u32(m->rows, rows) != m->terms) bad_row.report(rows);
    bool done = run.ranges(rows, 16 * piece, [&](uint64_t begin, uint64_t end, unsigned) {
      for (uint64_t i = begin; i < end; i++) {
        if (load_u32(m->rows, i) <= load_u32(m->rows, i + 1)) continue;
        bad_row.report(i + 1);
        return;
      }
    });
    if (!done) return CUZK_E_CANCELLED;
    if (bad_row.any()) {
      *fault = CUZK_CSR_ROWS;
      *first_bad = bad_row.value();
      return CUZK_E_DATA;
    }
    done = run.ranges(m->terms, 4 * piece, [&](uint64_t begin, uint64_t end, unsigned) {
      for (uint64_t k = begin; k < end; k++) {
        if (load_u32(m->columns, k) < n_vars && value_at<Fr>(*m, k).is_reduced()) continue;
        bad_term.report(k);
        return;
      }
    });
    if (!done) return CUZK_E_CANCELLED;
    if (bad_term.any()) {
      *fault = load_u32(m->columns, bad_term.value()) < n_vars ? CUZK_CSR_VALUE : CUZK_CSR_COLUMN;
      *first_bad = bad_term.value();
      return CUZK_E_DATA;
    }
    *fault = CUZK_CSR_OK;
    if (!present) return CUZK_OK;
    unsigned char *bits = static_cast<unsigned char *>(present);
    memset(bits, 0, (n_vars + 7) / 8);
    done = run.ranges(rows, piece, [&](uint64_t begin, uint64_t end, unsigned) {
      for (uint64_t i = begin; i < end; i++) mark_row<Fr>(*m, load_u32(m->rows, i), load_u32(m->rows, i + 1), bits);
    });
    return done ? CUZK_OK : CUZK_E_CANCELLED;
  });
}

int csr_evaluate(int curve, const cuzk_csr *matrices, uint64_t rows, uint64_t inputs, const void *w, uint64_t domain,
                 uint64_t stride, void *a, void *b, void *c, uint64_t *first_bad, Run &run) {
  return with_fr(curve, [&](auto type) -> int {
    using Fr = typename decltype(type)::type;
    SpanTimer span(run, CUZK_SPAN_SPMV);
    const char *values = static_cast<const char *>(w);
    Fr *const x = static_cast<Fr *>(a), *const y = static_cast<Fr *>(b), *const z = static_cast<Fr *>(c);
    LowestIndex bad;
    const bool done = run.ranges(domain, piece, [&](uint64_t begin, uint64_t end, unsigned) {
      for (uint64_t row = begin; row < end; row++) {
        Fr sums[3] = {Fr::zero(), Fr::zero(), Fr::zero()};
        if (row < rows) {
          for (int k = 0; k < 3; k++) sums[k] = row_sum<Fr>(matrices[k], row, values);
          if (sums[0] * sums[1] != sums[2]) bad.report(row);
        } else if (row < rows + inputs) {
          sums[0] = Fr::load(values + (row - rows) * Fr::bytes).to_mont();
        }
        const uint64_t place = row * stride & (domain - 1);
        x[place] = sums[0];
        y[place] = sums[1];
        z[place] = sums[2];
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
