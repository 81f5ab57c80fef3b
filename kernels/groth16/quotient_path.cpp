// The coefficients of h = (a b - c) / Z, Z = X^n - 1: the scalars of an H query in powers of tau.
#include "../capi/path_functions.hpp"
#include "../capi/select.hpp"
#include "../ntt/roots.hpp"

namespace cuzk {
namespace CUZK_PATH {

int quotient(int curve, void *a, const void *b, const void *c, uint32_t log_n, const void *table, Run &run) {
  return with_fr(curve, [&](auto type) -> int {
    using Fr = typename decltype(type)::type;
    constexpr uint64_t piece = 2048;
    const uint64_t n = uint64_t{1} << log_n;
    Fr *x = static_cast<Fr *>(a);
    {
      SpanTimer span(run, CUZK_SPAN_POINTWISE);
      const Fr *y = static_cast<const Fr *>(b), *z = static_cast<const Fr *>(c);
      const bool done = run.ranges(n, piece, [&](uint64_t begin, uint64_t end, unsigned) {
        for (uint64_t i = begin; i < end; i++) x[i] = x[i] * y[i] - z[i];
      });
      if (!done) return CUZK_E_CANCELLED;
    }
    const int transformed = ntt(curve, a, log_n, CUZK_NTT_INVERSE, table, run);
    if (transformed != CUZK_OK) return transformed;
    // Z is the same everywhere on the coset g H: g^n - 1. What is left is 1 / Z and the coset's powers g^-i, with plain
    // factors, which takes the result out of Montgomery form.
    SpanTimer span(run, CUZK_SPAN_COSET);
    const Fr g = Roots<Fr>::coset_shift(log_n), g_inverse = g.inverse();
    const Fr first = (g.pow(&n, 1) - Fr::one()).inverse().from_mont();
    const bool done = run.ranges(n, piece, [&](uint64_t begin, uint64_t end, unsigned) {
      Fr factor = first * g_inverse.pow(&begin, 1);
      for (uint64_t i = begin; i < end; i++) {
        x[i] = x[i] * factor;
        factor = factor * g_inverse;
      }
    });
    return done ? CUZK_OK : CUZK_E_CANCELLED;
  });
}

}  // namespace CUZK_PATH
}  // namespace cuzk
