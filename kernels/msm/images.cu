// Images of points under the endomorphism of ec/endomorphism_cuda.hpp; -DCUZK_CURVE=, -DCUZK_GROUP= 1 or 2.
#include "../ec/endomorphism_cuda.hpp"

using namespace cuzk::CUZK_PATH;
using F = CUZK_CURVE::Fq;

// images[i] = beta x of n affine points; their y stay what they are. A thread a component of x.
extern "C" __global__ void __launch_bounds__(256) msm_images(const char *points, uint64_t n, char *images) {
  constexpr uint32_t components = CUZK_GROUP;
  const F beta = cube_root<F>(CUZK_GROUP);
  for (uint64_t i = blockIdx.x * 256 + threadIdx.x; i < n * components; i += gridDim.x * 256) {
    const char *x = points + (i / components * 2 * components + i % components) * F::bytes;
    (F::load(x) * beta).store(images + i * F::bytes);
  }
}
