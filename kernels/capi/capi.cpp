// The C interface: arguments are checked here, the work is done by the path in use.
#include "../cuzk.h"

#include <string.h>

#include "../groth16/entries.hpp"
#include "arguments.hpp"
#include "path_table.hpp"

using namespace cuzk;

namespace {

bool is_field(int field) { return field >= CUZK_FR && field <= CUZK_FQ2; }
bool is_domain(int curve, uint32_t log_n) { return log_n <= two_adicity[curve]; }
size_t point_bytes(int curve, int group) { return 2 * coordinate_bytes[curve] * static_cast<size_t>(group); }

}  // namespace

extern "C" {

int cuzk_field_op(int curve, int field, int op, void *out, const void *a, const void *b, uint64_t n, cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && is_field(field) && op >= CUZK_ADD && op <= CUZK_FROM_MONT && is_call(call));
  CUZK_REQUIRE(is_array(out, n) && is_array(a, n) && (op > CUZK_MUL || is_array(b, n)));
  Run run(call);
  return paths().field_op(curve, field, op, out, a, op > CUZK_MUL ? nullptr : b, n, run);
}

int cuzk_field_check(int curve, int field, const void *a, uint64_t n, uint64_t *first_bad, cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && is_field(field) && is_array(a, n) && first_bad && is_call(call));
  Run run(call);
  return paths().field_check(curve, field, a, n, first_bad, run);
}

int cuzk_fr_classify(int curve, const void *a, uint64_t n, uint64_t counts[3], cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && is_array(a, n) && counts && is_call(call));
  Run run(call);
  return paths().fr_classify(a, n, counts, run);
}

int cuzk_point_op(int curve, int group, int op, void *out, const void *a, const void *b, uint64_t n, cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && is_group(group) && op >= CUZK_POINT_ADD && op <= CUZK_POINT_MUL && is_call(call));
  const bool binary = op == CUZK_POINT_ADD || op == CUZK_POINT_MUL;
  CUZK_REQUIRE(is_array(out, n) && is_array(a, n) && (!binary || is_array(b, n)));
  Run run(call);
  return paths().point_op(curve, group, op, out, a, b, n, run);
}

int cuzk_point_sums(int curve, int group, const void *points, const void *scalars, const uint32_t *counts, uint64_t sums,
                    void *out, void *scratch, cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && is_group(group) && is_array(counts, sums) && is_array(out, sums) && is_call(call));
  CUZK_REQUIRE(sums == 0 || (points && scalars && scratch));
  for (uint64_t k = 0; k < sums; k++) CUZK_REQUIRE(counts[k] > 0);
  Run run(call);
  const size_t size = point_bytes(curve, group);
  const char *point = static_cast<const char *>(points), *scalar = static_cast<const char *>(scalars);
  char *total = static_cast<char *>(out), *product = static_cast<char *>(scratch), *sum = product + size;
  for (uint64_t k = 0; k < sums; k++, total += size) {
    for (uint32_t i = 0; i < counts[k]; i++, point += size, scalar += sizeof one) {
      const char *term = point;
      if (memcmp(scalar, one, sizeof one) != 0) {
        if (int status = paths().point_op(curve, group, CUZK_POINT_MUL, product, point, scalar, 1, run)) return status;
        term = product;
      }
      if (i == 0) {
        memcpy(total, term, size);
        continue;
      }
      if (int status = paths().point_op(curve, group, CUZK_POINT_ADD, sum, total, term, 1, run)) return status;
      memcpy(total, sum, size);
    }
  }
  return CUZK_OK;
}

int cuzk_points_check(int curve, int group, const void *points, uint64_t n, int check_subgroup, uint64_t *first_bad,
                      int *fault, cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && is_group(group) && is_array(points, n) && first_bad && fault && is_call(call));
  Run run(call);
  return paths().points_check(curve, group, points, n, check_subgroup, first_bad, fault, run);
}

int cuzk_points_present(int curve, int group, const void *points, uint64_t n, uint64_t *present, cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && is_group(group) && is_array(points, n) && present && is_call(call));
  Run run(call);
  return paths().points_present(curve, group, points, n, present, run);
}

// 0 when curve or log_n is out of range.
uint64_t cuzk_ntt_table_bytes(int curve, uint32_t log_n) {
  if (!is_curve(curve) || !is_domain(curve, log_n)) return 0;
  return log_n == 0 ? 3 * 32 : uint64_t{64} << log_n;
}

int cuzk_ntt_table(int curve, uint32_t log_n, void *table, cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && is_domain(curve, log_n) && is_vector(table) && is_call(call));
  Run run(call);
  return paths().ntt_table(curve, log_n, table, run);
}

int cuzk_ntt(int curve, void *data, uint32_t log_n, int flags, const void *table, cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && is_domain(curve, log_n) && is_vector(data) && is_vector(table) && is_call(call));
  CUZK_REQUIRE((flags & ~(CUZK_NTT_INVERSE | CUZK_NTT_IN_REVERSED | CUZK_NTT_OUT_REVERSED)) == 0);
  Run run(call);
  return paths().ntt(curve, data, log_n, flags, table, run);
}

int cuzk_coset_scale(int curve, void *data, uint32_t log_n, int inverse, int reversed, const void *table,
                     cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && is_domain(curve, log_n) && is_vector(data) && is_vector(table) && is_call(call));
  Run run(call);
  return paths().coset_scale(curve, data, log_n, inverse, reversed, run);
}

int cuzk_coset_extend(int curve, void *data, uint32_t log_n, const void *table, cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && is_domain(curve, log_n) && is_vector(data) && is_vector(table) && is_call(call));
  Run run(call);
  return paths().coset_extend(curve, data, log_n, table, run);
}

int cuzk_coefficients_check(int curve, const void *entries, uint64_t n, uint64_t n_vars, uint64_t domain, int *sorted,
                            uint64_t nonzeros[2], uint64_t *first_bad, cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && is_array(entries, n) && sorted && nonzeros && first_bad && is_call(call));
  Run run(call);
  return paths().coefficients_check(curve, entries, n, n_vars, domain, sorted, nonzeros, first_bad, run);
}

// A counting sort, stable and on one thread: needed once for a key, and only where its list is not in order.
int cuzk_coefficients_order(const void *entries, uint64_t n, uint64_t domain, uint32_t *order, void *scratch,
                            cuzk_call *call) {
  CUZK_REQUIRE(is_array(entries, n) && n <= UINT32_MAX && domain < max_elements && (order || n == 0) &&
               is_vector(scratch));
  CUZK_REQUIRE(is_call(call));
  using Head = cuzk::portable::EntryHead;
  const Run run(call);
  constexpr uint64_t mask = (uint64_t{1} << 22) - 1;  // between two looks at the cancel flag
  uint64_t *next = static_cast<uint64_t *>(scratch);
  for (uint64_t i = 0; i <= domain; i++) next[i] = 0;
  for (uint64_t i = 0; i < n; i++) {
    if ((i & mask) == 0 && run.cancelled()) return CUZK_E_CANCELLED;
    const uint32_t row = Head::at(entries, i).constraint;
    CUZK_REQUIRE(row < domain);
    next[row + 1]++;
  }
  for (uint64_t i = 0; i < domain; i++) next[i + 1] += next[i];
  for (uint64_t i = 0; i < n; i++) {
    if ((i & mask) == 0 && run.cancelled()) return CUZK_E_CANCELLED;
    order[next[Head::at(entries, i).constraint]++] = static_cast<uint32_t>(i);
  }
  return CUZK_OK;
}

int cuzk_evaluate(int curve, const void *entries, uint64_t n, const uint32_t *order, const void *w, uint64_t domain,
                  void *a, void *b, void *c, cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && is_array(entries, n) && is_size(domain) && (w || n == 0) && is_call(call));
  CUZK_REQUIRE(domain == 0 || (is_vector(a) && is_vector(b) && (!c || is_vector(c))));
  Run run(call);
  return paths().evaluate(curve, entries, n, order, w, domain, a, b, c, run);
}

int cuzk_h_join(int curve, void *a, const void *b, const void *c, uint64_t n, cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && is_size(n) && is_call(call));
  CUZK_REQUIRE(n == 0 || (is_vector(a) && is_vector(b) && is_vector(c)));
  Run run(call);
  return paths().h_join(curve, a, b, c, n, run);
}

// 0 when an argument is out of range.
uint64_t cuzk_msm_scratch_bytes(int curve, int group, uint64_t n, uint32_t threads) {
  if (!is_curve(curve) || !is_group(group) || !is_size(n)) return 0;
  return paths().msm_scratch_bytes(curve, group, n, Run::resolve(threads));
}

int cuzk_msm(int curve, int group, const void *points, const void *scalars, uint64_t n, void *out, void *scratch,
             uint64_t scratch_bytes, cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && is_group(group) && is_array(points, n) && is_array(scalars, n) && out &&
               is_call(call));
  Run run(call);
  CUZK_REQUIRE(reinterpret_cast<uintptr_t>(scratch) % 64 == 0);
  if (!scratch || scratch_bytes < paths().msm_scratch_bytes(curve, group, n, run.threads())) return CUZK_E_SCRATCH;
  return paths().msm(curve, group, points, scalars, n, out, scratch, scratch_bytes, run);
}

int cuzk_msm_reference(int curve, int group, const void *points, const void *scalars, uint64_t n, void *out) {
  CUZK_REQUIRE(is_curve(curve) && is_group(group) && is_array(points, n) && is_array(scalars, n) && out);
  return paths().msm_reference(curve, group, points, scalars, n, out);
}

}  // extern "C"
