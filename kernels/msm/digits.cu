// Scalars to digits; -DCUZK_FIELD= names the scalar field.
#include "digits_cuda.hpp"

using namespace cuzk::CUZK_PATH;
using F = CUZK_FIELD;

// digits[w * n + i] of windows first + w, w < count; scalars plain, below r.
extern "C" __global__ void __launch_bounds__(256)
    msm_digits(const char *scalars, uint32_t n, uint32_t window_bits, uint32_t windows, uint32_t first, uint32_t count,
               uint32_t *digits) {
  const Windows shape{window_bits, windows};
  uint32_t half[F::N];
  SignedScalar<F>::raise(half, shape);
  for (uint32_t i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
    SignedScalar<F> s = SignedScalar<F>::from(F::load(scalars + (uint64_t)i * F::bytes), half);
    for (uint32_t w = 0; w < first; w++) s.shift(window_bits);
    for (uint32_t w = 0; w < count; w++) {
      digits[(uint64_t)w * n + i] = s.digit(first + w, shape);
      s.shift(window_bits);
    }
  }
}
