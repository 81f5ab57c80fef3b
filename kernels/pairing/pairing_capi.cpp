// The pairing section of cuzk.h: arguments are checked here, the work is the path's.
#include "../capi/arguments.hpp"
#include "../capi/path_table.hpp"

using namespace cuzk;

extern "C" {

int cuzk_pairing_check(int curve, const void *p, const void *q, uint64_t n, int *is_one, cuzk_call *call) {
  if (!is_curve(curve) || !is_one || !is_call(call)) return CUZK_E_ARGUMENT;
  if (!is_array(p, n) || !is_array(q, n)) return CUZK_E_ARGUMENT;
  Run run(call);
  return paths().pairing_check(curve, p, q, n, is_one, run);
}

int cuzk_pairing(int curve, const void *p, const void *q, void *out, cuzk_call *call) {
  if (!is_curve(curve) || !p || !q || !out || !is_call(call)) return CUZK_E_ARGUMENT;
  Run run(call);
  return paths().pairing(curve, p, q, out, run);
}

}  // extern "C"
