// The pairing section of cuzk.h: arguments are checked here, the work is the path's.
#include "../capi/path_table.hpp"

namespace {

constexpr uint64_t max_pairs = uint64_t{1} << 40;  // far above any memory, far below an overflow of a byte count

bool is_curve(int curve) { return curve == CUZK_BN254 || curve == CUZK_BLS12_381; }

}  // namespace

extern "C" {

int cuzk_pairing_check(int curve, const void *p, const void *q, uint64_t n, int *is_one, cuzk_call *call) {
  if (!is_curve(curve) || !is_one || !cuzk::is_call(call)) return CUZK_E_ARGUMENT;
  if (n > max_pairs || (n > 0 && (!p || !q))) return CUZK_E_ARGUMENT;
  cuzk::Run run(call);
  return cuzk::paths().pairing_check(curve, p, q, n, is_one, run);
}

int cuzk_pairing(int curve, const void *p, const void *q, void *out, cuzk_call *call) {
  if (!is_curve(curve) || !p || !q || !out || !cuzk::is_call(call)) return CUZK_E_ARGUMENT;
  cuzk::Run run(call);
  return cuzk::paths().pairing(curve, p, q, out, run);
}

}  // extern "C"
