// The functions that exist once for each code path, and the table through which the C interface calls them.
//
// A new path needs a line in CUZK_PATHS, one in candidates() of dispatch.cpp and its flags in CMakeLists.txt.
#pragma once
#include "run.hpp"

namespace cuzk {

// name, return type, parameters. Arguments have been checked by the C interface.
#define CUZK_PATH_FUNCTIONS(X) \
  X(field_op, int, (int curve, int field, int op, void *out, const void *a, const void *b, uint64_t n, Run &run)) \
  X(field_check, int, (int curve, int field, const void *a, uint64_t n, uint64_t *first_bad, Run &run)) \
  X(fr_classify, int, (const void *a, uint64_t n, uint64_t counts[3], Run &run)) \
  X(point_op, int, (int curve, int group, int op, void *out, const void *a, const void *b, uint64_t n, Run &run)) \
  X(points_check, int, \
    (int curve, int group, const void *points, uint64_t n, int check_subgroup, uint64_t *first_bad, int *fault, \
     Run &run)) \
  X(points_present, int, (int curve, int group, const void *points, uint64_t n, uint64_t *present, Run &run)) \
  X(points_decode, int, \
    (int group, const void *encoded, uint64_t n, const void *present, uint64_t n_out, void *out, int check_subgroup, \
     uint64_t *first_bad, int *fault, Run &run)) \
  X(subgroup_check_scratch_bytes, uint64_t, (int curve, int group, uint64_t n, unsigned threads)) \
  X(subgroup_check, int, \
    (int curve, int group, const void *points, uint64_t n, const unsigned char *seed, int *all, void *scratch, \
     Run &run)) \
  X(ntt_table, int, (int curve, uint32_t log_n, void *table, Run &run)) \
  X(ntt, int, (int curve, void *data, uint32_t log_n, int flags, const void *table, Run &run)) \
  X(coset_scale, int, (int curve, void *data, uint32_t log_n, int inverse, int reversed, Run &run)) \
  X(coset_extend, int, (int curve, void *data, uint32_t log_n, const void *table, Run &run)) \
  X(coefficients_check, int, \
    (int curve, const void *entries, uint64_t n, uint64_t n_vars, uint64_t domain, int *sorted, uint64_t nonzeros[2], \
     uint64_t *first_bad, Run &run)) \
  X(evaluate, int, \
    (int curve, const void *entries, uint64_t n, const uint32_t *order, const void *w, uint64_t domain, void *a, \
     void *b, void *c, Run &run)) \
  X(h_join, int, (int curve, void *a, const void *b, const void *c, uint64_t n, Run &run)) \
  X(csr_check, int, \
    (int curve, const cuzk_csr *matrix, uint64_t rows, uint64_t n_vars, void *present, int *fault, \
     uint64_t *first_bad, Run &run)) \
  X(csr_evaluate, int, \
    (int curve, const cuzk_csr *matrices, uint64_t rows, uint64_t inputs, const void *w, uint64_t domain, \
     uint64_t stride, void *a, void *b, void *c, uint64_t *first_bad, Run &run)) \
  X(quotient, int, (int curve, void *a, const void *b, const void *c, uint32_t log_n, const void *table, Run &run)) \
  X(msm_scratch_bytes, uint64_t, (int curve, int group, uint64_t n, unsigned threads)) \
  X(msm, int, \
    (int curve, int group, const void *points, const void *scalars, uint64_t n, void *out, void *scratch, \
     uint64_t scratch_bytes, Run &run)) \
  X(msm_reference, int, (int curve, int group, const void *points, const void *scalars, uint64_t n, void *out)) \
  X(fixed_base_table_bytes, uint64_t, (int curve, int group, uint32_t window)) \
  X(fixed_base_scratch_bytes, uint64_t, (int curve, int group, uint32_t window, unsigned threads)) \
  X(fixed_base_table, int, \
    (int curve, int group, const void *point, uint32_t window, void *table, void *scratch, Run &run)) \
  X(fixed_base_multiply, int, \
    (int curve, int group, const void *table, uint32_t window, const void *scalars, uint64_t n, void *out, void *scratch, \
     uint64_t *first_bad, Run &run)) \
  X(fr_powers, int, (int curve, const void *x, const void *first, uint64_t n, void *out, Run &run)) \
  X(fr_chain, int, (int curve, const void *x, const void *k, uint64_t n, void *out, Run &run)) \
  X(fr_lagrange, int, \
    (int curve, const void *w, const void *x, const void *k, uint64_t begin, uint64_t n, void *out, Run &run)) \
  X(fr_combine, int, \
    (int curve, void *out, const void *a, const void *b, const void *c, const void *k, uint64_t n, Run &run)) \
  X(r1cs_check, int, \
    (int curve, const void *section, uint64_t bytes, uint64_t constraints, uint64_t wires, uint64_t terms[3], \
     uint64_t *first_bad, Run &run)) \
  X(r1cs_columns, int, \
    (int curve, const void *section, uint64_t bytes, uint64_t constraints, uint64_t wires, const void *basis, void *a, \
     void *b, void *c, Run &run)) \
  X(r1cs_coefficients, int, \
    (int curve, const void *section, uint64_t bytes, uint64_t constraints, uint64_t *offset, uint64_t *row, void *entries, \
     uint64_t capacity, uint64_t *count, Run &run)) \
  X(pairing_check, int, (int curve, const void *p, const void *q, uint64_t n, int *is_one, Run &run)) \
  X(pairing, int, (int curve, const void *p, const void *q, void *out, Run &run))

struct PathTable {
#define X(name, type, parameters) type(*name) parameters;
  CUZK_PATH_FUNCTIONS(X)
#undef X
};

// The path in use; chosen at the first call, for good.
const PathTable &paths();

}  // namespace cuzk
