// Element-wise operations on one field; -DCUZK_FIELD= names its type.
#include "../ff/fp2.hpp"

using namespace cuzk::CUZK_PATH;
using F = CUZK_FIELD;

// op as cuzk_op in cuzk.h.
extern "C" __global__ void __launch_bounds__(128)
    field_op(int op, char *out, const char *a, const char *b, uint64_t n) {
  for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += (uint64_t)gridDim.x * blockDim.x) {
    const F x = F::load(a + i * F::bytes);
    F r = x;
    switch (op) {
      case 0: r = x + F::load(b + i * F::bytes); break;
      case 1: r = x - F::load(b + i * F::bytes); break;
      case 2: r = x * F::load(b + i * F::bytes); break;
      case 3: r = x.sqr(); break;
      case 4: r = -x; break;
      case 5: r = x.inverse(); break;
      case 6: r = x.to_mont(); break;
      default: r = x.from_mont(); break;
    }
    r.store(out + i * F::bytes);
  }
}

// Lowest index of an element that is not below the modulus, into *bad, which starts at 2^64 - 1.
extern "C" __global__ void field_check(const char *a, uint64_t n, uint64_t *bad) {
  for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += (uint64_t)gridDim.x * blockDim.x)
    if (!F::load(a + i * F::bytes).is_reduced()) atomicMin(bad, i);
}

// What a thread can do in registers: `rounds` times four dependent chains; for measuring.
extern "C" __global__ void __launch_bounds__(256) field_throughput(int op, char *data, int rounds) {
  const uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
  F x = F::load(data + i * F::bytes), y = x + F::one();
  if (op == 2) {
    for (int k = 0; k < rounds; k++) {
      x = x * y;
      y = y * x;
    }
  } else if (op == 3) {
    for (int k = 0; k < rounds; k++) {
      x = x.sqr();
      y = y.sqr();
    }
  } else {
    for (int k = 0; k < rounds; k++) {
      x = x + y;
      y = y + x;
    }
  }
  (x + y).store(data + i * F::bytes);
}
