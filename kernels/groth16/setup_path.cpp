// What making a key needs of Fr: powers, the Lagrange basis at a point, a constraint system's columns at that point, and
// section 4 of a zkey.
#include "../capi/path_functions.hpp"
#include "../capi/select.hpp"
#include "../ff/batch_inverse.hpp"
#include "entries.hpp"
#include "r1cs_rows.hpp"

namespace cuzk {
namespace CUZK_PATH {

namespace {

constexpr uint64_t piece = 2048;
constexpr uint64_t rows_between_looks = 1 << 14;  // at the cancel flag
constexpr uint64_t max_column_tasks = 16;         // each reads the whole section

// The terms of all rows whose wire lies in [begin, end), added up in columns a, b, c. False when the section is damaged.
template <class Fr>
bool add_columns(const void *section, uint64_t bytes, uint64_t constraints, uint64_t wires, const Fr *basis, Fr *const *columns,
                 uint64_t begin, uint64_t end, const Run &run) {
  R1csRows rows(section, bytes);
  for (uint64_t row = 0; row < constraints; row++) {
    if (row % rows_between_looks == 0 && run.cancelled()) return true;
    for (int matrix = 0; matrix < 3; matrix++) {
      const char *terms;
      uint32_t count;
      if (!rows.next(terms, count)) return false;
      for (uint32_t i = 0; i < count; i++) {
        const uint64_t wire = R1csRows::wire(terms, i);
        if (wire < begin || wire >= end) {
          if (wire >= wires) return false;
          continue;
        }
        columns[matrix][wire] += Fr::load(R1csRows::coefficient(terms, i)) * basis[row];
      }
    }
  }
  return true;
}

}  // namespace

int fr_powers(int curve, const void *x, const void *first, uint64_t n, void *out, Run &run) {
  return with_fr(curve, [&](auto type) -> int {
    using Fr = typename decltype(type)::type;
    SpanTimer span(run, CUZK_SPAN_POINTWISE);
    const Fr base = Fr::load(x), start = Fr::load(first);
    Fr *p = static_cast<Fr *>(out);
    const bool done = run.ranges(n, piece, [&](uint64_t begin, uint64_t end, unsigned) {
      Fr power = start * base.pow(&begin, 1);
      for (uint64_t i = begin; i < end; i++) {
        p[i] = power;
        power = power * base;
      }
    });
    return done ? CUZK_OK : CUZK_E_CANCELLED;
  });
}

int fr_chain(int curve, const void *x, const void *k, uint64_t n, void *out, Run &run) {
  return with_fr(curve, [&](auto type) -> int {
    using Fr = typename decltype(type)::type;
    SpanTimer span(run, CUZK_SPAN_POINTWISE);
    const Fr step = Fr::load(k);
    Fr value = Fr::load(x);
    for (uint64_t i = 0; i < n; i++) {
      if (i % rows_between_looks == 0 && run.cancelled()) return CUZK_E_CANCELLED;
      value = value.sqr() + step;
      value.store(static_cast<char *>(out) + i * Fr::bytes);
    }
    return CUZK_OK;
  });
}

int fr_lagrange(int curve, const void *w, const void *x, const void *k, uint64_t begin, uint64_t n, void *out, Run &run) {
  return with_fr(curve, [&](auto type) -> int {
    using Fr = typename decltype(type)::type;
    SpanTimer span(run, CUZK_SPAN_POINTWISE);
    const Fr point = Fr::load(x), factor = Fr::load(k), omega = Fr::load(w);
    Fr *p = static_cast<Fr *>(out);
    std::atomic<bool> on_domain{false};
    const bool done = run.ranges(n, piece, [&](uint64_t from, uint64_t to, unsigned) {
      constexpr uint64_t block = 256;
      Fr inverse[block], products[block];
      const uint64_t exponent = begin + from;
      Fr power = omega.pow(&exponent, 1);
      for (uint64_t at = from; at < to; at += block) {
        const uint64_t count = to - at < block ? to - at : block;
        for (uint64_t i = 0; i < count; i++) {
          p[at + i] = power;
          inverse[i] = point - power;
          if (inverse[i].is_zero()) on_domain.store(true, std::memory_order_relaxed);
          power = power * omega;
        }
        batch_inverse(inverse, products, count);
        for (uint64_t i = 0; i < count; i++) p[at + i] = p[at + i] * inverse[i] * factor;
      }
    });
    if (!done) return CUZK_E_CANCELLED;
    return on_domain ? CUZK_E_DATA : CUZK_OK;
  });
}

int fr_combine(int curve, void *out, const void *a, const void *b, const void *c, const void *k, uint64_t n, Run &run) {
  return with_fr(curve, [&](auto type) -> int {
    using Fr = typename decltype(type)::type;
    SpanTimer span(run, CUZK_SPAN_POINTWISE);
    const char *factors = static_cast<const char *>(k);
    const Fr ka = Fr::load(factors), kb = Fr::load(factors + Fr::bytes), kc = Fr::load(factors + 2 * Fr::bytes);
    const bool done = run.ranges(n, piece, [&](uint64_t begin, uint64_t end, unsigned) {
      for (uint64_t i = begin; i < end; i++) {
        const size_t at = i * Fr::bytes;
        (Fr::load(static_cast<const char *>(a) + at) * ka + Fr::load(static_cast<const char *>(b) + at) * kb +
         Fr::load(static_cast<const char *>(c) + at) * kc)
            .store(static_cast<char *>(out) + at);
      }
    });
    return done ? CUZK_OK : CUZK_E_CANCELLED;
  });
}

int r1cs_check(int curve, const void *section, uint64_t bytes, uint64_t constraints, uint64_t wires, uint64_t terms[3],
               uint64_t *first_bad, Run &run) {
  return with_fr(curve, [&](auto type) -> int {
    using Fr = typename decltype(type)::type;
    SpanTimer span(run, CUZK_SPAN_CHECK);
    R1csRows rows(section, bytes);
    terms[0] = terms[1] = terms[2] = 0;
    for (uint64_t row = 0; row < constraints; row++) {
      if (row % rows_between_looks == 0 && run.cancelled()) return CUZK_E_CANCELLED;
      *first_bad = row;
      for (int matrix = 0; matrix < 3; matrix++) {
        const char *p;
        uint32_t count;
        if (!rows.next(p, count)) return CUZK_E_DATA;
        terms[matrix] += count;
        for (uint32_t i = 0; i < count; i++)
          if (R1csRows::wire(p, i) >= wires || !Fr::load(R1csRows::coefficient(p, i)).is_reduced()) return CUZK_E_DATA;
      }
    }
    *first_bad = constraints;
    return rows.offset() == bytes ? CUZK_OK : CUZK_E_DATA;
  });
}

int r1cs_columns(int curve, const void *section, uint64_t bytes, uint64_t constraints, uint64_t wires, const void *basis,
                 void *a, void *b, void *c, Run &run) {
  return with_fr(curve, [&](auto type) -> int {
    using Fr = typename decltype(type)::type;
    SpanTimer span(run, CUZK_SPAN_SPMV);
    Fr *const columns[3] = {static_cast<Fr *>(a), static_cast<Fr *>(b), static_cast<Fr *>(c)};
    std::atomic<bool> damaged{false};
    // Each task owns a range of wires, so that nobody else adds there; all of them read all terms.
    const uint64_t tasks = run.threads() < max_column_tasks ? run.threads() : max_column_tasks;
    const bool done = run.parallel(tasks, [&](size_t task, unsigned) {
      const uint64_t begin = wires * task / tasks, end = wires * (task + 1) / tasks;
      for (Fr *column : columns) memset(static_cast<void *>(column + begin), 0, (end - begin) * sizeof(Fr));
      if (!add_columns(section, bytes, constraints, wires, static_cast<const Fr *>(basis), columns, begin, end, run))
        damaged.store(true, std::memory_order_relaxed);
    });
    if (!done) return CUZK_E_CANCELLED;
    return damaged ? CUZK_E_DATA : CUZK_OK;
  });
}

int r1cs_coefficients(int curve, const void *section, uint64_t bytes, uint64_t constraints, uint64_t *offset, uint64_t *row,
                      void *entries, uint64_t capacity, uint64_t *count, Run &run) {
  return with_fr(curve, [&](auto type) -> int {
    using Fr = typename decltype(type)::type;
    SpanTimer span(run, CUZK_SPAN_SPMV);
    const Fr r3 = Fr::raw(Montgomery<typename Fr::P>::r2).to_mont();  // R^3: a plain value times it gives value * R^2
    char *p = static_cast<char *>(entries);
    *count = 0;
    while (*row < constraints) {
      if (*row % rows_between_looks == 0 && run.cancelled()) return CUZK_E_CANCELLED;
      R1csRows rows(section, bytes, *offset);
      const char *terms[3];
      uint32_t counts[3];
      for (int matrix = 0; matrix < 3; matrix++)
        if (!rows.next(terms[matrix], counts[matrix])) return CUZK_E_DATA;
      const uint64_t needed = uint64_t{counts[0]} + counts[1];
      if (needed > capacity - *count) return *count ? CUZK_OK : CUZK_E_SCRATCH;
      for (uint32_t matrix = 0; matrix < 2; matrix++) {
        for (uint32_t i = 0; i < counts[matrix]; i++) {
          char *entry = p + *count * EntryHead::bytes;
          const EntryHead head{matrix, static_cast<uint32_t>(*row), R1csRows::wire(terms[matrix], i)};
          memcpy(entry, &head, sizeof head);
          (Fr::load(R1csRows::coefficient(terms[matrix], i)) * r3).store(entry + sizeof head);
          ++*count;
        }
      }
      *offset = rows.offset();
      ++*row;
    }
    return CUZK_OK;
  });
}

}  // namespace CUZK_PATH
}  // namespace cuzk
