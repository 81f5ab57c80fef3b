// Section 4 of a zkey, read where it lies: 44-byte entries without alignment.
#pragma once
#include <string.h>

#include "../ff/config.hpp"

namespace cuzk {
namespace CUZK_PATH {

struct EntryHead {
  static constexpr uint64_t bytes = 44;

  uint32_t matrix, constraint, signal;

  static inline EntryHead at(const void *entries, uint64_t i) {
    EntryHead head;
    memcpy(&head, static_cast<const char *>(entries) + i * bytes, sizeof head);
    return head;
  }
  static inline const char *coefficient(const void *entries, uint64_t i) {
    return static_cast<const char *>(entries) + i * bytes + sizeof(EntryHead);
  }
};

}  // namespace CUZK_PATH
}  // namespace cuzk
