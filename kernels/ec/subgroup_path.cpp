// Whether many points all have order r, by sums of random subsets.
//
// A pass puts every point into one of 2^k buckets at random. The sum of all buckets whose number has bit j set is the
// sum of a random subset of the points, for each j below k. A point that is not of order r makes a difference: of two
// subsets that differ in this point alone, at most one has a sum of order r. So each sum misses it with probability 1/2
// at most, whatever the other points are, and `security_bits` of them together with 2^-64. That takes about seven
// additions a point; testing a single point takes well over a hundred. (The random subset test of Bellare, Garay,
// Rabin, "Fast batch verification for modular exponentiation and digital signatures", 1998.)
#include <string.h>

#include "../capi/path_functions.hpp"
#include "../capi/select.hpp"
#include "chacha.hpp"
#include "subgroup.hpp"

namespace cuzk {
namespace CUZK_PATH {

namespace {

constexpr unsigned security_bits = 64;
constexpr uint64_t piece = 1 << 15;      // points a task
constexpr unsigned max_bits = 11;        // 2^11 buckets of 192 or 384 bytes
constexpr uint64_t cancel_every = 2048;  // additions between two looks at the flag

// Buckets for n points: as many as keep their summing up well below the points' additions.
unsigned bucket_bits(uint64_t n) {
  unsigned k = 3;
  while (k < max_bits && (uint64_t{16} << k) <= n) k++;
  return k;
}

template <class Curve, class F>
bool is_clean(const SubgroupTest<Curve, F> &has_order_r, const char *points, uint64_t n, unsigned bits,
              ChaCha12 &random, Xyzz<F> *buckets, const Run &run) {
  for (uint64_t j = 0; j < uint64_t{1} << bits; j++) buckets[j] = Xyzz<F>::infinity();
  for (uint64_t i = 0; i < n; i++) {
    if (i % cancel_every == 0 && run.cancelled()) return true;
    buckets[random.next() & ((1u << bits) - 1)].add(Affine<F>::load(points + i * sizeof(Affine<F>)));
  }
  // The upper half of the buckets is the subset of the highest bit; folded onto the lower half, the others remain.
  for (unsigned bit = bits; bit-- > 0;) {
    const uint64_t half = uint64_t{1} << bit;
    Xyzz<F> sum = Xyzz<F>::infinity();
    for (uint64_t j = 0; j < half; j++) {
      sum.add(buckets[half + j]);
      buckets[j].add(buckets[half + j]);
    }
    if (!has_order_r(sum.to_affine())) return false;
  }
  return true;
}

}  // namespace

uint64_t subgroup_check_scratch_bytes(int curve, int group, uint64_t n, unsigned threads) {
  return with_group(curve, group, [&](auto, auto field) -> uint64_t {
    using F = typename decltype(field)::type;
    return (sizeof(Xyzz<F>) << bucket_bits(n < piece ? n : piece)) * threads;
  });
}

int subgroup_check(int curve, int group, const void *points, uint64_t n, const unsigned char *seed, int *all,
                   void *scratch, Run &run) {
  return with_group(curve, group, [&](auto c, auto field) -> int {
    using Curve = typename decltype(c)::type;
    using F = typename decltype(field)::type;
    SpanTimer span(run, CUZK_SPAN_CHECK);
    const unsigned bits = bucket_bits(n < piece ? n : piece);
    const unsigned passes = (security_bits + bits - 1) / bits;
    const char *p = static_cast<const char *>(points);
    const SubgroupTest<Curve, F> has_order_r;
    std::atomic<bool> clean{true};
    const bool done = run.parallel((n + piece - 1) / piece * passes, [&](size_t task, unsigned slot) {
      if (!clean) return;
      const uint64_t first = task / passes * piece, count = n - first < piece ? n - first : piece;
      ChaCha12 random(seed, task);
      Xyzz<F> *buckets = static_cast<Xyzz<F> *>(scratch) + (size_t{slot} << bits);
      if (!is_clean<Curve, F>(has_order_r, p + first * sizeof(Affine<F>), count, bits, random, buckets,
          run)) clean = false;
    });
    if (!done) return CUZK_E_CANCELLED;
    *all = clean;
    return CUZK_OK;
  });
}

}  // namespace CUZK_PATH
}  // namespace cuzk
