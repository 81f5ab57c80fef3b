// Plain memory by several threads: one does not fill the memory's bandwidth. What is written goes past the caches: it is
// large, and a device copies it from memory right after, at its full rate if no cache has to be asked for it.
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "../cuzk.h"
#include "run.hpp"

using cuzk::is_call;
using cuzk::Run;

namespace {

constexpr uint64_t piece = uint64_t{1} << 20;  // bytes a task: longer than its start, shorter than a look at the flag
constexpr uint64_t most = uint64_t{1} << 46;

#ifdef __SSE2__
constexpr uint64_t line = 64;

// load(offset) gives the 16 bytes that belong there; [begin, end) are offsets from `to`.
template <class Load, class Rest>
void stream(char *to, uint64_t begin, uint64_t end, Load load, Rest rest) {
  const uint64_t misaligned = (line - reinterpret_cast<uintptr_t>(to + begin) % line) % line;
  const uint64_t first = misaligned < end - begin ? begin + misaligned : end;
  const uint64_t last = first + (end - first) / line * line;
  rest(begin, first);
  for (uint64_t at = first; at < last; at += line)
    for (uint64_t k = 0; k < line; k += 16) _mm_stream_si128(reinterpret_cast<__m128i *>(to + at + k), load(at + k));
  rest(last, end);
  _mm_sfence();
}
#endif

void copy(char *to, const char *from, uint64_t begin, uint64_t end) {
  const auto plain = [=](uint64_t first, uint64_t last) { memcpy(to + first, from + first, last - first); };
#ifdef __SSE2__
  const auto load = [=](uint64_t at) { return _mm_loadu_si128(reinterpret_cast<const __m128i *>(from + at)); };
  stream(to, begin, end, load, plain);
#else
  plain(begin, end);
#endif
}

void zero(char *data, uint64_t begin, uint64_t end) {
  const auto plain = [=](uint64_t first, uint64_t last) { memset(data + first, 0, last - first); };
#ifdef __SSE2__
  stream(data, begin, end, [](uint64_t) { return _mm_setzero_si128(); }, plain);
#else
  plain(begin, end);
#endif
}

}  // namespace

extern "C" {

int cuzk_bytes_copy(void *to, const void *from, uint64_t n, cuzk_call *call) {
  if (!is_call(call) || n > most || (n && (!to || !from))) return CUZK_E_ARGUMENT;
  Run run(call);
  const bool done = run.ranges(n, piece, [&](uint64_t begin, uint64_t end, unsigned) {
    copy(static_cast<char *>(to), static_cast<const char *>(from), begin, end);
  });
  return done ? CUZK_OK : CUZK_E_CANCELLED;
}

int cuzk_bytes_zero(void *data, uint64_t n, cuzk_call *call) {
  if (!is_call(call) || n > most || (n && !data)) return CUZK_E_ARGUMENT;
  Run run(call);
  const bool done = run.ranges(n, piece, [&](uint64_t begin, uint64_t end, unsigned) {
    zero(static_cast<char *>(data), begin, end);
  });
  return done ? CUZK_OK : CUZK_E_CANCELLED;
}

}  // extern "C"
