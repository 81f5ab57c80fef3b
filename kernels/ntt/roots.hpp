// Roots of unity of Fr as snarkjs (ffjavascript) chooses them.
#pragma once
#include "../ff/fp.hpp"

namespace cuzk {
namespace CUZK_PATH {

template <class Fr>
struct Roots {
  using P = typename Fr::P;
  static constexpr uint32_t two_adicity = P::two_adicity;

  // omega of order 2^k.
  static Fr omega(uint32_t k) {
    // (r - 1) / 2^s
    uint64_t t[4];
    for (int i = 0; i < 4; i++) {
      t[i] = P::modulus[i] >> two_adicity;
      if (i < 3) t[i] |= P::modulus[i + 1] << (64 - two_adicity);
    }
    Fr w = Fr::from_u64(P::non_residue).pow(t, 4);
    for (uint32_t i = two_adicity; i > k; i--) w = w.sqr();
    return w;
  }

  // The generator of the coset that a domain of 2^log_n is extended to.
  static Fr coset_shift(uint32_t log_n) {
    if (log_n < two_adicity) return omega(log_n + 1);
    return Fr::from_u64(P::non_residue).sqr();
  }

  static Fr inverse_of_size(uint32_t log_n) {  // 2^-log_n
    const Fr half = Fr::from_u64(2).inverse();
    Fr r = Fr::one();
    for (uint32_t i = 0; i < log_n; i++) r = r * half;
    return r;
  }
};

// The low `bits` bits of i in reverse order.
CUZK_INLINE uint64_t reverse_bits(uint64_t i, uint32_t bits) {
  if (bits == 0) return 0;
  i = (i & 0x5555555555555555) << 1 | (i >> 1 & 0x5555555555555555);
  i = (i & 0x3333333333333333) << 2 | (i >> 2 & 0x3333333333333333);
  i = (i & 0x0f0f0f0f0f0f0f0f) << 4 | (i >> 4 & 0x0f0f0f0f0f0f0f0f);
  return __builtin_bswap64(i) >> (64 - bits);
}

}  // namespace CUZK_PATH
}  // namespace cuzk
