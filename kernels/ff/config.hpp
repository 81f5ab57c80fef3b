// What every header under kernels/ agrees on.
//
// The templates are compiled several times, once for each code path of the processor (see CMakeLists.txt), each time
// into a namespace of its own, so that no linker can mix up two instances that were built with different instructions:
//   CUZK_PATH       the namespace: portable, adx, ifma, ...
//   CUZK_PATH_ADX   set where bmi2 and adx may be used
//   CUZK_PATH_IFMA  set where, on top of those, AVX-512 F, DQ, VL, BW and IFMA may be used
// Files named *_path.cpp are compiled once for each path, all others once.
// CUZK_TARGET_CUDA selects the fields on 32-bit limbs (fp_cuda.hpp): for the device, and on the host where device code is tested.
#ifdef CUZK_TARGET_CUDA
#define CUZK_PATH cuda
#endif
#ifndef CUZK_PATH
#define CUZK_PATH portable
#endif

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define CUZK_HD __host__ __device__
#define CUZK_INLINE __forceinline__
#define CUZK_UNROLL _Pragma("unroll")
#else
#define CUZK_HD
#define CUZK_INLINE inline __attribute__((always_inline))
#define CUZK_UNROLL
#endif

#if !defined(__CUDACC_RTC__)
#include <stddef.h>
#include <stdint.h>
#else
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using int32_t = int;
using uint64_t = unsigned long long;
using int64_t = long long;
#endif
