// What the functions of the C interface expect of their arguments.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "../cuzk.h"
#include "run.hpp"

#define CUZK_REQUIRE(condition) \
  do { \
    if (!(condition)) return CUZK_E_ARGUMENT; \
  } while (0)

namespace cuzk {

constexpr uint64_t max_elements = uint64_t{1} << 40;  // far above any memory, far below an overflow of a byte count
constexpr uint32_t two_adicity[2] = {28, 32};
constexpr size_t coordinate_bytes[2] = {32, 48};
constexpr unsigned char one[32] = {1};  // an element of Fr, plain

inline bool is_curve(int curve) { return curve == CUZK_BN254 || curve == CUZK_BLS12_381; }
inline bool is_group(int group) { return group == CUZK_G1 || group == CUZK_G2; }
inline bool is_size(uint64_t n) { return n <= max_elements; }
// n elements at p.
inline bool is_array(const void *p, uint64_t n) { return is_size(n) && (p || n == 0); }
inline bool is_aligned(const void *p) { return reinterpret_cast<uintptr_t>(p) % 8 == 0; }
inline bool is_vector(const void *p) { return p && is_aligned(p); }

}  // namespace cuzk
