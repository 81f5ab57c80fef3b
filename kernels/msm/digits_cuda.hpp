// Signed digits of scalars, for the device: any digit on its own, without the ones below it.
//
// A scalar s < r is replaced by min(s, r - s), its point's sign by the opposite in the second case; that frees a bit. Or
// by its halves, see ec/endomorphism_cuda.hpp, which are of either sign too.
// Adding half a window's range at every window but the top one makes the plain digits of the sum those of s, raised
// by the same half: so
//     digit w = ((s + sum of 2^(c - 1 + c v), v < W - 1) >> c w) mod 2^c - 2^(c - 1),  in [-2^(c-1), 2^(c-1)),
// and the top digit, not raised, is in [0, 2^(c-1)].
#pragma once
#include "../ec/endomorphism_cuda.hpp"

namespace cuzk {
namespace CUZK_PATH {

struct Windows {
  uint32_t bits, count;  // c and W; W c >= bits of r, or half_bits
};

// The one of s and s - r, s plain and below r, that is nearer to zero.
template <class Fr>
CUZK_INLINE Signed<Fr::N> nearer(const Fr &s) {
  const Fr other = -s;
  carry::sub_cc(other.v[0], s.v[0]);
CUZK_UNROLL
  for (int i = 1; i < Fr::N; i++) carry::subc_cc(other.v[i], s.v[i]);
  Signed<Fr::N> r;
  r.negative = carry::subc(0, 0) != 0 && !s.is_zero();
  const Fr chosen = Fr::select(r.negative, other, s);
CUZK_UNROLL
  for (int i = 0; i < Fr::N; i++) r.v[i] = chosen.v[i];
  return r;
}

// A digit as the sort takes it: its absolute value, 0 for none, and bit 31 when the point is to be subtracted.
constexpr uint32_t digit_negative = 0x80000000u;

template <int N>
struct SignedScalar {
  uint32_t v[N];
  bool negative;

  // What is added to a scalar.
  static CUZK_INLINE void raise(uint32_t *half, Windows windows) {
CUZK_UNROLL
    for (int i = 0; i < N; i++) half[i] = 0;
    for (uint32_t w = 0; w + 1 < windows.count; w++) {
      const uint32_t position = (w + 1) * windows.bits - 1;
CUZK_UNROLL
      for (int i = 0; i < N; i++)
        if (position / 32 == (uint32_t)i) half[i] |= 1u << (position % 32);
    }
  }

  // `half`: what `raise` gives.
  static CUZK_INLINE SignedScalar from(const Signed<N> &number, const uint32_t *half) {
    SignedScalar s;
    s.negative = number.negative;
    s.v[0] = carry::add_cc(number.v[0], half[0]);
CUZK_UNROLL
    for (int i = 1; i < N; i++) s.v[i] = carry::addc_cc(number.v[i], half[i]);
    return s;
  }

  // Drops the lowest `bits` bits, at most 32.
  CUZK_INLINE void shift(uint32_t bits) {
CUZK_UNROLL
    for (int i = 0; i < N; i++) {
      const uint64_t both = (uint64_t)(i + 1 < N ? v[i + 1] : 0) << 32 | v[i];
      v[i] = (uint32_t)(both >> bits);
    }
  }

  // Digit w of a scalar that was shifted by w windows.
  CUZK_INLINE uint32_t digit(uint32_t w, Windows windows) const {
    const uint32_t raised = v[0] & ((1u << windows.bits) - 1);
    const int32_t d = (int32_t)raised - (w + 1 < windows.count ? 1 << (windows.bits - 1) : 0);
    if (d == 0) return 0;
    const bool minus = (d < 0) != negative;
    return (uint32_t)(d < 0 ? -d : d) | (minus ? digit_negative : 0);
  }
};

}  // namespace CUZK_PATH
}  // namespace cuzk
