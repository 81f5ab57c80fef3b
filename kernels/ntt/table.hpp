// The table of twiddles of one domain size.
//
// All tables lie in bit-reversed order of the exponent: the transforms below need one twiddle a block, T[j] for block j
// of every level, so that each level reads a prefix of the same table from its start to its end.
#pragma once
#include "roots.hpp"

namespace cuzk {
namespace CUZK_PATH {

template <class Fr>
struct TwiddleTable {
  // n = 2^log_n elements, bits = log_n - 1 (0 for n = 1)
  Fr *forward;  // max(n/2, 1): omega^reverse(j)
  Fr *inverse;  // max(n/2, 1): omega^-reverse(j)
  Fr *coset;    // n: g^reverse(i) / n, what stands between the two transforms of coset_extend

  static uint64_t half(uint32_t log_n) { return log_n ? uint64_t{1} << (log_n - 1) : 1; }
  static uint64_t elements(uint32_t log_n) { return 2 * half(log_n) + (uint64_t{1} << log_n); }
  static TwiddleTable at(void *table, uint32_t log_n) {
    Fr *p = static_cast<Fr *>(table);
    return {p, p + half(log_n), p + 2 * half(log_n)};
  }
  static TwiddleTable at(const void *table, uint32_t log_n) { return at(const_cast<void *>(table), log_n); }
};

}  // namespace CUZK_PATH
}  // namespace cuzk
