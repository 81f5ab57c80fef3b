// Element-wise field operations of the C interface.
#include "../capi/path_functions.hpp"
#include "../capi/select.hpp"

namespace cuzk {
namespace CUZK_PATH {

namespace {

constexpr uint64_t piece = 4096;  // elements a task: well below a millisecond, except for inversions

template <class F, class Op>
void map(void *out, const void *a, const void *b, uint64_t begin, uint64_t end, Op op) {
  const char *pa = static_cast<const char *>(a), *pb = static_cast<const char *>(b);
  char *po = static_cast<char *>(out);
  for (uint64_t i = begin; i < end; i++) {
    const F x = F::load(pa + i * F::bytes);
    op(x, pb ? F::load(pb + i * F::bytes) : x).store(po + i * F::bytes);
  }
}

template <class F>
void apply(int op, void *out, const void *a, const void *b, uint64_t begin, uint64_t end) {
  switch (op) {
    case CUZK_ADD: return map<F>(out, a, b, begin, end, [](const F &x, const F &y) { return x + y; });
    case CUZK_SUB: return map<F>(out, a, b, begin, end, [](const F &x, const F &y) { return x - y; });
    case CUZK_MUL: return map<F>(out, a, b, begin, end, [](const F &x, const F &y) { return x * y; });
    case CUZK_SQR: return map<F>(out, a, nullptr, begin, end, [](const F &x, const F &) { return x.sqr(); });
    case CUZK_NEG: return map<F>(out, a, nullptr, begin, end, [](const F &x, const F &) { return -x; });
    case CUZK_INV: return map<F>(out, a, nullptr, begin, end, [](const F &x, const F &) { return x.inverse(); });
    case CUZK_TO_MONT: return map<F>(out, a, nullptr, begin, end, [](const F &x, const F &) { return x.to_mont(); });
    default: return map<F>(out, a, nullptr, begin, end, [](const F &x, const F &) { return x.from_mont(); });
  }
}

}  // namespace

int field_op(int curve, int field, int op, void *out, const void *a, const void *b, uint64_t n, Run &run) {
  return with_field(curve, field, [&](auto type) -> int {
    using F = typename decltype(type)::type;
    const bool done = run.ranges(n, op == CUZK_INV ? 64 : piece, [&](uint64_t begin, uint64_t end, unsigned) {
      apply<F>(op, out, a, b, begin, end);
    });
    return done ? CUZK_OK : CUZK_E_CANCELLED;
  });
}

int field_check(int curve, int field, const void *a, uint64_t n, uint64_t *first_bad, Run &run) {
  return with_field(curve, field, [&](auto type) -> int {
    using F = typename decltype(type)::type;
    SpanTimer span(run, CUZK_SPAN_CHECK);
    LowestIndex bad;
    const char *p = static_cast<const char *>(a);
    const bool done = run.ranges(n, piece, [&](uint64_t begin, uint64_t end, unsigned) {
      for (uint64_t i = begin; i < end; i++) {
        if (F::load(p + i * F::bytes).is_reduced()) continue;
        bad.report(i);
        return;
      }
    });
    if (!done) return CUZK_E_CANCELLED;
    if (!bad.any()) return CUZK_OK;
    *first_bad = bad.value();
    return CUZK_E_DATA;
  });
}

int fr_classify(const void *a, uint64_t n, uint64_t counts[3], Run &run) {
  std::atomic<uint64_t> zeros{0}, ones{0};
  const char *p = static_cast<const char *>(a);
  const bool done = run.ranges(n, 4 * piece, [&](uint64_t begin, uint64_t end, unsigned) {
    uint64_t z = 0, o = 0;
    for (uint64_t i = begin; i < end; i++) {
      uint64_t x[4];
      memcpy(x, p + i * sizeof x, sizeof x);
      const uint64_t high = x[1] | x[2] | x[3];
      z += (x[0] | high) == 0;
      o += ((x[0] ^ 1) | high) == 0;
    }
    zeros += z;
    ones += o;
  });
  if (!done) return CUZK_E_CANCELLED;
  counts[0] = zeros;
  counts[1] = ones;
  counts[2] = n - zeros - ones;
  return CUZK_OK;
}

}  // namespace CUZK_PATH
}  // namespace cuzk
