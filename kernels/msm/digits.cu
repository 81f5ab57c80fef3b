// Scalars to digits; -DCUZK_FIELD= names the scalar field.
#include "digits_cuda.hpp"

using namespace cuzk::CUZK_PATH;
using F = CUZK_FIELD;

namespace {

// Of windows first + w, w < count: digits[w * pitch].
template <int N>
CUZK_INLINE void write_digits(SignedScalar<N> s, Windows windows, uint32_t first, uint32_t count, uint32_t *digits,
                              uint64_t pitch) {
  for (uint32_t w = 0; w < first; w++) s.shift(windows.bits);
  for (uint32_t w = 0; w < count; w++) {
    digits[w * pitch] = s.digit(first + w, windows);
    s.shift(windows.bits);
  }
}

}  // namespace

// digits[w * n + i] of windows first + w, w < count; scalars plain, below r.
extern "C" __global__ void __launch_bounds__(256)
    msm_digits(const char *scalars, uint32_t n, uint32_t window_bits, uint32_t windows, uint32_t first, uint32_t count,
               uint32_t *digits) {
  const Windows shape{window_bits, windows};
  uint32_t half[F::N];
  SignedScalar<F::N>::raise(half, shape);
  for (uint32_t i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
    const auto s = SignedScalar<F::N>::from(nearer(F::load(scalars + (uint64_t)i * F::bytes)), half);
    write_digits(s, shape, first, count, digits + i, n);
  }
}

// The same of both halves of each scalar: of the first ones at digits[w * 2 n + i], of the second ones n further.
extern "C" __global__ void __launch_bounds__(256)
    msm_digits_of_halves(const char *scalars, uint32_t n, uint32_t window_bits, uint32_t windows, uint32_t first,
                         uint32_t count, uint32_t *digits) {
  const Windows shape{window_bits, windows};
  uint32_t half[4];
  SignedScalar<4>::raise(half, shape);
  for (uint32_t i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
    const auto halves = Halves<F>::of(F::load(scalars + (uint64_t)i * F::bytes));
    write_digits(SignedScalar<4>::from(halves.k1, half), shape, first, count, digits + i, 2 * (uint64_t)n);
    write_digits(SignedScalar<4>::from(halves.k2, half), shape, first, count, digits + n + i, 2 * (uint64_t)n);
  }
}
