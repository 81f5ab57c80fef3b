// 32-bit additions and multiply-adds with a carry flag: PTX on the device, the same functions in C++ on the host.
//
// Names follow PTX: a leading `c` after the operation reads the flag, a trailing `_cc` writes it. The device's flag
// lives between consecutive calls only, so chains are written without anything in between that may touch it.
#pragma once
#include "config.hpp"

namespace cuzk {
namespace CUZK_PATH {
namespace carry {

#if defined(__CUDA_ARCH__)

#define CUZK_CARRY_2(name, instruction)                                                \
  static CUZK_INLINE uint32_t name(uint32_t a, uint32_t b) {                           \
    uint32_t r;                                                                        \
    asm volatile(instruction " %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));               \
    return r;                                                                          \
  }
#define CUZK_CARRY_3(name, instruction)                                                \
  static CUZK_INLINE uint32_t name(uint32_t a, uint32_t b, uint32_t c) {               \
    uint32_t r;                                                                        \
    asm volatile(instruction " %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));   \
    return r;                                                                          \
  }
CUZK_CARRY_2(add_cc, "add.cc.u32")
CUZK_CARRY_2(addc_cc, "addc.cc.u32")
CUZK_CARRY_2(addc, "addc.u32")
CUZK_CARRY_2(sub_cc, "sub.cc.u32")
CUZK_CARRY_2(subc_cc, "subc.cc.u32")
CUZK_CARRY_2(subc, "subc.u32")
CUZK_CARRY_3(mad_lo_cc, "mad.lo.cc.u32")
CUZK_CARRY_3(madc_lo_cc, "madc.lo.cc.u32")
CUZK_CARRY_3(madc_hi_cc, "madc.hi.cc.u32")
CUZK_CARRY_3(madc_hi, "madc.hi.u32")
// -a, in a way that ptxas does not fold into the multiplications that follow: folded, their low and high halves are
// no longer fused into one instruction.
static CUZK_INLINE uint32_t negative(uint32_t a) {
  uint32_t r;
  asm volatile("{.reg .u32 t; not.b32 t, %1; add.u32 %0, t, 1;}" : "=r"(r) : "r"(a));
  return r;
}
#undef CUZK_CARRY_2
#undef CUZK_CARRY_3

#else

inline uint32_t &flag() {
  static thread_local uint32_t value = 0;
  return value;
}
inline uint32_t sum(uint32_t a, uint32_t b, uint32_t in) {
  const uint64_t s = (uint64_t)a + b + in;
  flag() = (uint32_t)(s >> 32);
  return (uint32_t)s;
}
inline uint32_t difference(uint32_t a, uint32_t b, uint32_t in) {
  const uint64_t d = (uint64_t)a - b - in;
  flag() = (uint32_t)(d >> 32) & 1;
  return (uint32_t)d;
}
inline uint32_t negative(uint32_t a) { return 0u - a; }
inline uint32_t high(uint32_t a, uint32_t b) { return (uint32_t)(((uint64_t)a * b) >> 32); }
inline uint32_t add_cc(uint32_t a, uint32_t b) { return sum(a, b, 0); }
inline uint32_t addc_cc(uint32_t a, uint32_t b) { return sum(a, b, flag()); }
inline uint32_t addc(uint32_t a, uint32_t b) { return sum(a, b, flag()); }
inline uint32_t sub_cc(uint32_t a, uint32_t b) { return difference(a, b, 0); }
inline uint32_t subc_cc(uint32_t a, uint32_t b) { return difference(a, b, flag()); }
inline uint32_t subc(uint32_t a, uint32_t b) { return difference(a, b, flag()); }
inline uint32_t mad_lo_cc(uint32_t a, uint32_t b, uint32_t c) { return sum(a * b, c, 0); }
inline uint32_t madc_lo_cc(uint32_t a, uint32_t b, uint32_t c) { return sum(a * b, c, flag()); }
inline uint32_t madc_hi_cc(uint32_t a, uint32_t b, uint32_t c) { return sum(high(a, b), c, flag()); }
inline uint32_t madc_hi(uint32_t a, uint32_t b, uint32_t c) { return sum(high(a, b), c, flag()); }

#endif

}  // namespace carry
}  // namespace CUZK_PATH
}  // namespace cuzk
