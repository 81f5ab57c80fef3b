// BLS12-381 points in the zcash encoding, uncompressed: big-endian plain coordinates, of Fq2 elements c1 before c0,
// flags in the top three bits of the first byte (https://github.com/zkcrypto/pairing, bls12_381 README,
// "Serialization").
#include <string.h>

#include "../capi/path_functions.hpp"
#include "subgroup.hpp"

namespace cuzk {
namespace CUZK_PATH {

namespace {

using Fq = Bls12_381Fq;
using Fq2 = Bls12_381Fq2;

// Elements of the output a task, multiples of 8: below a millisecond, and about 8 milliseconds with the test of the
// order.
constexpr uint64_t piece = 1024, piece_subgroup = 128;
constexpr unsigned char compressed = 0x80, infinite = 0x40, flags = 0xe0;

// Plain limbs; the three flag bits belong to no limb.
Fq read(const unsigned char *p, bool first) {
  Fq r;
  for (int i = 0; i < 6; i++) {
    uint64_t v;
    memcpy(&v, p + 8 * (5 - i), sizeof v);
    r.v[i] = __builtin_bswap64(v);
  }
  if (first) r.v[5] &= ~uint64_t{0} >> 3;
  return r;
}

void read(const unsigned char *p, Affine<Fq> &out) { out = {read(p, true), read(p + 48, false)}; }
void read(const unsigned char *p, Affine<Fq2> &out) {
  out.x = {read(p + 48, false), read(p, true)};
  out.y = {read(p + 144, false), read(p + 96, false)};
}

template <class F>
using OrderTest = SubgroupTest<Bls12_381, F>;

template <class F>
int decode(const unsigned char *p, const F &b, const OrderTest<F> *has_order_r, Affine<F> &out) {
  Affine<F> plain;
  read(p, plain);
  if (p[0] & flags) {
    if ((p[0] & flags) == infinite && plain.is_infinity()) return CUZK_POINT_INFINITY;
    return CUZK_POINT_FLAGS;
  }
  if (!plain.x.is_reduced() || !plain.y.is_reduced()) return CUZK_POINT_COORDINATE;
  out = {plain.x.to_mont(), plain.y.to_mont()};
  // (0, 0) is not on the curve, though the in-memory form means infinity by it.
  if (out.is_infinity() || !out.on_curve(b)) return CUZK_POINT_OFF_CURVE;
  if (has_order_r && !(*has_order_r)(out)) return CUZK_POINT_SUBGROUP;
  return CUZK_POINT_OK;
}

uint64_t count_bits(const unsigned char *bits, uint64_t begin, uint64_t end) {  // begin a multiple of 8
  uint64_t count = 0;
  for (; begin + 64 <= end; begin += 64) {
    uint64_t word;
    memcpy(&word, bits + begin / 8, sizeof word);
    count += __builtin_popcountll(word);
  }
  for (; begin + 8 <= end; begin += 8) count += __builtin_popcount(bits[begin / 8]);
  if (begin < end) count += __builtin_popcount(bits[begin / 8] & ((1u << (end - begin)) - 1));
  return count;
}

template <class F>
int decode_all(const void *encoded, uint64_t n, const void *present, uint64_t n_out, void *out, bool subgroup,
               uint64_t *first_bad, int *fault, Run &run) {
  constexpr size_t size = sizeof(Affine<F>);
  const unsigned char *source = static_cast<const unsigned char *>(encoded);
  const unsigned char *bits = static_cast<const unsigned char *>(present);
  char *target = static_cast<char *>(out);
  if ((bits ? count_bits(bits, 0, n_out) : n_out) != n) return CUZK_E_ARGUMENT;
  const F b = GroupConstant<Bls12_381, F>::b();
  const OrderTest<F> test;
  const OrderTest<F> *const has_order_r = subgroup ? &test : nullptr;
  LowestIndex bad;
  SpanTimer span(run, CUZK_SPAN_CHECK);
  const bool done = run.ranges(n_out, subgroup ? piece_subgroup : piece, [&](uint64_t begin, uint64_t end, unsigned) {
    // Which point comes first here: the bits before are counted again, 64 at a time, which costs less than one point.
    uint64_t k = bits ? count_bits(bits, 0, begin) : begin;
    for (uint64_t i = begin; i < end && k < bad.value(); i++) {
      Affine<F> point = Affine<F>::infinity();
      if (!bits || (bits[i / 8] >> (i % 8) & 1)) {
        if (decode(source + k * size, b, has_order_r, point) != CUZK_POINT_OK) {
          bad.report(k);
          return;
        }
        k++;
      }
      if (target) point.store(target + i * size);
    }
  });
  if (!done) return CUZK_E_CANCELLED;
  *fault = CUZK_POINT_OK;
  if (!bad.any()) return CUZK_OK;
  Affine<F> ignored;
  *first_bad = bad.value();
  *fault = decode(source + bad.value() * size, b, has_order_r, ignored);
  return CUZK_E_DATA;
}

}  // namespace

int points_decode(int group, const void *encoded, uint64_t n, const void *present, uint64_t n_out, void *out,
                  int check_subgroup, uint64_t *first_bad, int *fault, Run &run) {
  return group == CUZK_G1
             ? decode_all<Fq>(encoded, n, present, n_out, out, check_subgroup != 0, first_bad, fault, run)
             : decode_all<Fq2>(encoded, n, present, n_out, out, check_subgroup != 0, first_bad, fault, run);
}

}  // namespace CUZK_PATH
}  // namespace cuzk
