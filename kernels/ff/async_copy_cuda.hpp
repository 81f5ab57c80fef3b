// Copies from global to shared memory that bypass registers, where the device has them (from compute capability 8.0
// on).
#pragma once
#include "fp_cuda.hpp"

namespace cuzk {
namespace CUZK_PATH {

static CUZK_INLINE void copy_quad_async(Quad *shared, const void *global) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
#else
  *shared = *static_cast<const Quad *>(global);
#endif
}

// Ends a group of copies.
static CUZK_INLINE void copies_commit() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most `open` groups of this thread are under way.
template <int open>
static CUZK_INLINE void copies_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(open) : "memory");
#endif
}

}  // namespace CUZK_PATH
}  // namespace cuzk
