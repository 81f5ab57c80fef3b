// The pairing section of cuzk.h: arguments are checked here, the work is the path's.
#include "../capi/path_table.hpp"

namespace {

bool is_curve(int curve) { return curve == CUZK_BN254 || curve == CUZK_BLS12_381; }

}  // namespace

extern "C" {

int cuzk_pairing_check(int curve, const void *p, const void *q, uint64_t n, int *is_one, cuzk_call *call) {
  // 192 bytes is the size of a BLS12-381 G2 point: no larger n can describe memory.
  if (!is_curve(curve) || !is_one || (n > 0 && (!p || !q)) || n > UINT64_MAX / 192) return CUZK_E_ARGUMENT;
  cuzk::Run run(call);
  return cuzk::paths().pairing_check(curve, p, q, n, is_one, run);
}

int cuzk_pairing(int curve, const void *p, const void *q, void *out, cuzk_call *call) {
  if (!is_curve(curve) || !p || !q || !out) return CUZK_E_ARGUMENT;
  cuzk::Run run(call);
  return cuzk::paths().pairing(curve, p, q, out, run);
}

}  // extern "C"
