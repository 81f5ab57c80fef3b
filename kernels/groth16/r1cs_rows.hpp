// Section 2 of an .r1cs file, read where it lies: per constraint three linear combinations, each u32 number of terms, then
// {u32 wire, 32 bytes plain coefficient}. Nothing is trusted: every count is held against the end of the section.
#pragma once
#include <string.h>

#include "../ff/config.hpp"

namespace cuzk {
namespace CUZK_PATH {

class R1csRows {
 public:
  static constexpr uint64_t term_bytes = 36;

  R1csRows(const void *section, uint64_t bytes, uint64_t offset = 0)
      : p_(static_cast<const char *>(section)), bytes_(bytes), at_(offset) {}

  uint64_t offset() const { return at_; }

  // Sets `terms` to the terms of the next linear combination and `count` to their number; false when it does not fit.
  CUZK_INLINE bool next(const char *&terms, uint32_t &count) {
    if (at_ > bytes_ || bytes_ - at_ < sizeof count) return false;
    memcpy(&count, p_ + at_, sizeof count);
    at_ += sizeof count;
    if (count > (bytes_ - at_) / term_bytes) return false;
    terms = p_ + at_;
    at_ += count * term_bytes;
    return true;
  }

  static CUZK_INLINE uint32_t wire(const char *terms, uint32_t i) {
    uint32_t w;
    memcpy(&w, terms + i * term_bytes, sizeof w);
    return w;
  }
  static CUZK_INLINE const char *coefficient(const char *terms, uint32_t i) { return terms + i * term_bytes + 4; }

 private:
  const char *p_;
  uint64_t bytes_, at_;
};

}  // namespace CUZK_PATH
}  // namespace cuzk
