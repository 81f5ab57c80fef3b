// Montgomery's trick: n inversions for one inversion and 3 (n - 1) multiplications.
#pragma once
#include "fp.hpp"

namespace cuzk {
namespace CUZK_PATH {

// a[i] becomes its inverse; zeros stay zero. products: room for n elements.
template <class F>
void batch_inverse(F *a, F *products, size_t n) {
  F acc = F::one();
  for (size_t i = 0; i < n; i++) {
    products[i] = acc;
    if (!a[i].is_zero()) acc = acc * a[i];
  }
  F inv = acc.inverse();
  for (size_t i = n; i-- > 0;) {
    if (a[i].is_zero()) continue;
    const F x = inv * products[i];
    inv = inv * a[i];
    a[i] = x;
  }
}

}  // namespace CUZK_PATH
}  // namespace cuzk
