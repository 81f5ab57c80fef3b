// The C interface's functions for keys in the zcash encoding and for constraint systems in compressed rows.
#include "../cuzk.h"

#include "arguments.hpp"
#include "path_table.hpp"

using namespace cuzk;

namespace {

bool is_csr(const cuzk_csr &m) {
  return m.rows && m.terms <= UINT32_MAX && (m.terms == 0 || (m.columns && m.values));
}

}  // namespace

extern "C" {

int cuzk_points_decode(int curve, int group, const void *encoded, uint64_t n, const void *present, uint64_t n_out,
                       void *out, int check_subgroup, uint64_t *first_bad, int *fault, cuzk_call *call) {
  CUZK_REQUIRE(curve == CUZK_BLS12_381 && is_group(group) && is_call(call));
  CUZK_REQUIRE(n <= max_elements && n_out <= max_elements && (encoded || n == 0) && first_bad && fault);
  Run run(call);
  return paths().points_decode(group, encoded, n, present, n_out, out, check_subgroup, first_bad, fault, run);
}

// 0 when an argument is out of range.
uint64_t cuzk_subgroup_check_scratch_bytes(int curve, int group, uint64_t n, uint32_t threads) {
  if (!is_curve(curve) || !is_group(group) || n > max_elements) return 0;
  return paths().subgroup_check_scratch_bytes(curve, group, n, Run::resolve(threads));
}

int cuzk_subgroup_check(int curve, int group, const void *points, uint64_t n, const uint8_t seed[32], int *all,
                        void *scratch, uint64_t scratch_bytes, cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && is_group(group) && n <= max_elements && (points || n == 0));
  CUZK_REQUIRE(seed && all && is_call(call));
  Run run(call);
  if (!is_vector(scratch) || scratch_bytes < paths().subgroup_check_scratch_bytes(curve, group, n, run.threads()))
    return CUZK_E_SCRATCH;
  return paths().subgroup_check(curve, group, points, n, seed, all, scratch, run);
}

int cuzk_csr_check(int curve, const cuzk_csr *matrix, uint64_t rows, uint64_t n_vars, void *present, int *fault,
                   uint64_t *first_bad, cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && matrix && is_csr(*matrix) && fault && first_bad && is_call(call));
  CUZK_REQUIRE(rows < UINT32_MAX && n_vars <= UINT32_MAX);
  Run run(call);
  return paths().csr_check(curve, matrix, rows, n_vars, present, fault, first_bad, run);
}

int cuzk_csr_evaluate(int curve, const cuzk_csr matrices[3], uint64_t rows, uint64_t inputs, const void *w,
                      uint64_t domain, uint64_t stride, void *a, void *b, void *c, uint64_t *first_bad,
cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && matrices && w && first_bad && is_call(call));
  for (int k = 0; k < 3; k++) CUZK_REQUIRE(is_csr(matrices[k]));
  CUZK_REQUIRE(domain && domain <= max_elements && (domain & (domain - 1)) == 0 && (stride & 1));
  CUZK_REQUIRE(rows <= domain && inputs <= domain - rows && is_vector(a) && is_vector(b) && is_vector(c));
  Run run(call);
  return paths().csr_evaluate(curve, matrices, rows, inputs, w, domain, stride, a, b, c, first_bad, run);
}

int cuzk_quotient(int curve, void *a, const void *b, const void *c, uint32_t log_n, const void *table,
                  cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && log_n <= two_adicity[curve] && is_vector(table) && is_call(call));
  CUZK_REQUIRE(is_vector(a) && is_vector(b) && is_vector(c));
  Run run(call);
  return paths().quotient(curve, a, b, c, log_n, table, run);
}

}  // extern "C"
