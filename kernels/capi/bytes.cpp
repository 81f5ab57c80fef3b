// Plain memory by several threads: one does not fill the memory's bandwidth.
#include <string.h>

#include "../cuzk.h"
#include "run.hpp"

using cuzk::is_call;
using cuzk::Run;

namespace {

constexpr uint64_t piece = uint64_t{1} << 20;  // bytes a task: longer than its start, shorter than a look at the flag
constexpr uint64_t most = uint64_t{1} << 46;

}  // namespace

extern "C" {

int cuzk_bytes_copy(void *to, const void *from, uint64_t n, cuzk_call *call) {
  if (!is_call(call) || n > most || (n && (!to || !from))) return CUZK_E_ARGUMENT;
  Run run(call);
  const bool done = run.ranges(n, piece, [&](uint64_t begin, uint64_t end, unsigned) {
    memcpy(static_cast<char *>(to) + begin, static_cast<const char *>(from) + begin, end - begin);
  });
  return done ? CUZK_OK : CUZK_E_CANCELLED;
}

int cuzk_bytes_zero(void *data, uint64_t n, cuzk_call *call) {
  if (!is_call(call) || n > most || (n && !data)) return CUZK_E_ARGUMENT;
  Run run(call);
  const bool done = run.ranges(n, piece, [&](uint64_t begin, uint64_t end, unsigned) {
    memset(static_cast<char *>(data) + begin, 0, end - begin);
  });
  return done ? CUZK_OK : CUZK_E_CANCELLED;
}

}  // extern "C"
