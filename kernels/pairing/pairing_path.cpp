// Pairings of the C interface.
#include "pairing.hpp"
#include "../capi/path_functions.hpp"

namespace cuzk {
namespace CUZK_PATH {

namespace {

// Pairs that share the squarings of one Miller loop, at most. A squaring costs about half as much as one pair's part of
// a step, so that more would save little, and the points on their way stay within a few KiB of stack.
constexpr uint64_t max_group = 8;
// The fewest, where there are threads for more groups. The four pairs of a Groth16 check stay on the calling thread: on
// two threads they take 0.46 instead of 0.61 ms while both processors are idle, and 0.77 ms while they are not (BN254,
// an EPYC with adx).
constexpr uint64_t min_group = 4;
// Products that are kept until they are multiplied by the calling thread.
constexpr uint64_t max_groups = 32;

template <class F>
auto with_tower(int curve, F &&f) {
  return curve == 0 ? f(Bn254Tower{}) : f(Bls12_381Tower{});
}

// The product of the Miller functions of pairs begin to end - 1, at most max_group of them; infinity counts as 1.
template <class T>
Fq12<T> group_product(const char *p, const char *q, uint64_t begin, uint64_t end) {
  using G1 = typename T::Curve::G1;
  using G2 = typename T::Curve::G2;
  MillerPair<T> pairs[max_group];
  size_t n = 0;
  for (uint64_t i = begin; i < end; i++) {
    const G1 a = G1::load(p + i * sizeof(G1));
    const G2 b = G2::load(q + i * sizeof(G2));
    if (!a.is_infinity() && !b.is_infinity()) pairs[n++] = MillerPair<T>(a, b);
  }
  return miller_loop(pairs, n);
}

uint64_t group_size(uint64_t n, unsigned threads) {
  const uint64_t even = (n + threads - 1) / threads;
  return even < min_group ? min_group : even < max_group ? even : max_group;
}

}  // namespace

int pairing_check(int curve, const void *p, const void *q, uint64_t n, int *is_one, Run &run) {
  return with_tower(curve, [&](auto tower) -> int {
    using T = decltype(tower);
    SpanTimer span(run, CUZK_SPAN_PAIRING);
    const uint64_t group = group_size(n, run.threads());
    Fq12<T> product = Fq12<T>::one();
    for (uint64_t first = 0; first < n; first += group * max_groups) {
      Fq12<T> parts[max_groups];
      const uint64_t left = n - first, count = left < group * max_groups ? left : group * max_groups;
      const bool done = run.ranges(count, group, [&](uint64_t begin, uint64_t end, unsigned) {
        parts[begin / group] =
            group_product<T>(static_cast<const char *>(p), static_cast<const char *>(q), first + begin, first + end);
      });
      if (!done) return CUZK_E_CANCELLED;
      for (uint64_t i = 0; i * group < count; i++) product = product * parts[i];
    }
    *is_one = final_exponentiation(product) == Fq12<T>::one();
    return CUZK_OK;
  });
}

int pairing(int curve, const void *p, const void *q, void *out, Run &run) {
  return with_tower(curve, [&](auto tower) -> int {
    using T = decltype(tower);
    SpanTimer span(run, CUZK_SPAN_PAIRING);
    const Fq12<T> f = group_product<T>(static_cast<const char *>(p), static_cast<const char *>(q), 0, 1);
    final_exponentiation(f).store_plain(out);
    return CUZK_OK;
  });
}

}  // namespace CUZK_PATH
}  // namespace cuzk
