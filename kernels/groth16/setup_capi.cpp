// The key generation section of cuzk.h: arguments are checked here, the work is the path's.
#include "../capi/arguments.hpp"
#include "../capi/path_table.hpp"

using namespace cuzk;

namespace {

constexpr uint32_t min_window = 2, max_window = 16;

bool is_base(int curve, int group, uint32_t window) {
  return is_curve(curve) && is_group(group) && window >= min_window && window <= max_window;
}
bool is_vector(const void *p, uint64_t n) { return is_array(p, n) && is_aligned(p); }
bool is_scratch(const void *p) { return p && reinterpret_cast<uintptr_t>(p) % 64 == 0; }
bool is_system(int curve, const void *section, uint64_t bytes, uint64_t constraints) {
  return is_curve(curve) && is_array(section, bytes) && constraints <= UINT32_MAX;
}

}  // namespace

extern "C" {

// 0 when an argument is out of range.
uint64_t cuzk_fixed_base_table_bytes(int curve, int group, uint32_t window) {
  return is_base(curve, group, window) ? paths().fixed_base_table_bytes(curve, group, window) : 0;
}

uint64_t cuzk_fixed_base_scratch_bytes(int curve, int group, uint32_t window, uint32_t threads) {
  return is_base(curve, group, window) ? paths().fixed_base_scratch_bytes(curve, group, window, Run::resolve(threads)) : 0;
}

int cuzk_fixed_base_table(int curve, int group, const void *point, uint32_t window, void *table, void *scratch,
                          uint64_t scratch_bytes, cuzk_call *call) {
  CUZK_REQUIRE(is_base(curve, group, window) && point && is_scratch(table) && is_scratch(scratch) && is_call(call));
  Run run(call);
  if (scratch_bytes < paths().fixed_base_scratch_bytes(curve, group, window, run.threads())) return CUZK_E_SCRATCH;
  return paths().fixed_base_table(curve, group, point, window, table, scratch, run);
}

int cuzk_fixed_base_multiply(int curve, int group, const void *table, uint32_t window, const void *scalars, uint64_t n,
                             void *out, void *scratch, uint64_t scratch_bytes, uint64_t *first_bad, cuzk_call *call) {
  CUZK_REQUIRE(is_base(curve, group, window) && is_array(scalars, n) && is_array(out, n) && first_bad);
  CUZK_REQUIRE(is_scratch(table) && is_scratch(scratch) && is_call(call));
  Run run(call);
  if (scratch_bytes < paths().fixed_base_scratch_bytes(curve, group, window, run.threads())) return CUZK_E_SCRATCH;
  return paths().fixed_base_multiply(curve, group, table, window, scalars, n, out, scratch, first_bad, run);
}

int cuzk_fr_powers(int curve, const void *x, const void *first, uint64_t n, void *out, cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && x && first && is_vector(out, n) && is_call(call));
  Run run(call);
  return paths().fr_powers(curve, x, first, n, out, run);
}

int cuzk_fr_chain(int curve, const void *x, const void *k, uint64_t n, void *out, cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && x && k && is_array(out, n) && is_call(call));
  Run run(call);
  return paths().fr_chain(curve, x, k, n, out, run);
}

int cuzk_fr_lagrange(int curve, const void *w, const void *x, const void *k, uint64_t begin, uint64_t n, void *out,
                     cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && w && x && k && begin <= max_elements && is_vector(out, n) && is_call(call));
  Run run(call);
  return paths().fr_lagrange(curve, w, x, k, begin, n, out, run);
}

int cuzk_fr_combine(int curve, void *out, const void *a, const void *b, const void *c, const void *k, uint64_t n,
                    cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && k && is_array(out, n) && is_array(a, n) && is_array(b, n) && is_array(c, n));
  CUZK_REQUIRE(is_call(call));
  Run run(call);
  return paths().fr_combine(curve, out, a, b, c, k, n, run);
}

int cuzk_r1cs_check(int curve, const void *section, uint64_t bytes, uint64_t constraints, uint64_t wires, uint64_t terms[3],
                    uint64_t *first_bad, cuzk_call *call) {
  CUZK_REQUIRE(is_system(curve, section, bytes, constraints) && terms && first_bad && is_call(call));
  Run run(call);
  return paths().r1cs_check(curve, section, bytes, constraints, wires, terms, first_bad, run);
}

int cuzk_r1cs_columns(int curve, const void *section, uint64_t bytes, uint64_t constraints, uint64_t wires, const void *basis,
                      void *a, void *b, void *c, cuzk_call *call) {
  CUZK_REQUIRE(is_system(curve, section, bytes, constraints) && is_vector(basis, constraints) && is_call(call));
  CUZK_REQUIRE(is_vector(a, wires) && is_vector(b, wires) && is_vector(c, wires));
  Run run(call);
  return paths().r1cs_columns(curve, section, bytes, constraints, wires, basis, a, b, c, run);
}

int cuzk_r1cs_coefficients(int curve, const void *section, uint64_t bytes, uint64_t constraints, uint64_t *offset,
                           uint64_t *row, void *entries, uint64_t capacity, uint64_t *count, cuzk_call *call) {
  CUZK_REQUIRE(is_system(curve, section, bytes, constraints) && offset && row && count && is_call(call));
  CUZK_REQUIRE(is_array(entries, capacity));
  Run run(call);
  return paths().r1cs_coefficients(curve, section, bytes, constraints, offset, row, entries, capacity, count, run);
}

}  // extern "C"
