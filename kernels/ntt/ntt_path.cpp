// Transforms of the C interface.
#include "../capi/path_functions.hpp"
#include "../capi/select.hpp"
#include "transform.hpp"

namespace cuzk {
namespace CUZK_PATH {

namespace {

constexpr uint64_t piece = 4096;

// t[j] = first * product of step[k] over the bits k set in j, in parallel from 2^11 on.
template <class Fr>
bool fill(Fr *t, uint32_t bits, const Fr &first, const Fr *step, Run &run) {
  t[0] = first;
  for (uint32_t k = 0; k < bits; k++) {
    const uint64_t count = uint64_t{1} << k;
    const bool done = run.ranges(count, 2048, [&](uint64_t begin, uint64_t end, unsigned) {
      for (uint64_t j = begin; j < end; j++) t[count + j] = t[j] * step[k];
    });
    if (!done) return false;
  }
  return true;
}

// t[j] = first * base^reverse(j), 2^bits elements.
template <class Fr>
bool fill_reversed(Fr *t, uint32_t bits, const Fr &first, Fr base, Run &run) {
  Fr step[64];
  for (uint32_t k = bits; k-- > 0;) {  // bit k of j stands for the exponent 2^(bits - 1 - k)
    step[k] = base;
    base = base.sqr();
  }
  return fill(t, bits, first, step, run);
}

template <class Fr>
bool scale(Fr *data, uint64_t n, const Fr &k, Run &run) {
  return run.ranges(n, piece, [&](uint64_t begin, uint64_t end, unsigned) {
    for (uint64_t i = begin; i < end; i++) data[i] = data[i] * k;
  });
}

template <class Fr>
using ScalarTransform = Transform<Fr, TileScalar<Fr>>;

}  // namespace

int ntt_table(int curve, uint32_t log_n, void *table, Run &run) {
  return with_fr(curve, [&](auto type) -> int {
    using Fr = typename decltype(type)::type;
    const auto t = TwiddleTable<Fr>::at(table, log_n);
    const uint32_t bits = log_n ? log_n - 1 : 0;
    const Fr omega = Roots<Fr>::omega(log_n);
    const bool done = fill_reversed(t.forward, bits, Fr::one(), omega, run) &&
                      fill_reversed(t.inverse, bits, Fr::one(), omega.inverse(), run) &&
                      fill_reversed(t.coset, log_n, Roots<Fr>::inverse_of_size(log_n), Roots<Fr>::coset_shift(log_n), run);
    return done ? CUZK_OK : CUZK_E_CANCELLED;
  });
}

int ntt(int curve, void *data, uint32_t log_n, int flags, const void *table, Run &run) {
  return with_fr(curve, [&](auto type) -> int {
    using Fr = typename decltype(type)::type;
    SpanTimer span(run, CUZK_SPAN_NTT);
    const auto t = TwiddleTable<Fr>::at(table, log_n);
    Fr *x = static_cast<Fr *>(data);
    ScalarTransform<Fr> transform(x, log_n, run);
    const Fr *twiddles = flags & CUZK_NTT_INVERSE ? t.inverse : t.forward;
    const bool in_reversed = flags & CUZK_NTT_IN_REVERSED, out_reversed = flags & CUZK_NTT_OUT_REVERSED;
    bool done;
    if (in_reversed)
      done = transform.to_natural(twiddles) && (!out_reversed || transform.reorder());
    else
      done = transform.to_reversed(twiddles) && (out_reversed || transform.reorder());
    if (done && (flags & CUZK_NTT_INVERSE)) done = scale(x, uint64_t{1} << log_n, Roots<Fr>::inverse_of_size(log_n), run);
    return done ? CUZK_OK : CUZK_E_CANCELLED;
  });
}

int coset_scale(int curve, void *data, uint32_t log_n, int inverse, int reversed, Run &run) {
  return with_fr(curve, [&](auto type) -> int {
    using Fr = typename decltype(type)::type;
    SpanTimer span(run, CUZK_SPAN_COSET);
    Fr *x = static_cast<Fr *>(data);
    Fr g = Roots<Fr>::coset_shift(log_n);
    if (inverse) g = g.inverse();
    const bool done = run.ranges(uint64_t{1} << log_n, piece, [&](uint64_t begin, uint64_t end, unsigned) {
      Fr power = g.pow(&begin, 1);
      for (uint64_t i = begin; i < end; i++) {
        Fr &y = x[reversed ? reverse_bits(i, log_n) : i];
        y = y * power;
        power = power * g;
      }
    });
    return done ? CUZK_OK : CUZK_E_CANCELLED;
  });
}

int coset_extend(int curve, void *data, uint32_t log_n, const void *table, Run &run) {
  return with_fr(curve, [&](auto type) -> int {
    using Fr = typename decltype(type)::type;
    const auto t = TwiddleTable<Fr>::at(table, log_n);
    Fr *x = static_cast<Fr *>(data);
    ScalarTransform<Fr> transform(x, log_n, run);
    {
      SpanTimer span(run, CUZK_SPAN_NTT, 0);
      if (!transform.to_reversed(t.inverse)) return CUZK_E_CANCELLED;
    }
    {
      SpanTimer span(run, CUZK_SPAN_COSET);
      const bool done = run.ranges(uint64_t{1} << log_n, piece, [&](uint64_t begin, uint64_t end, unsigned) {
        for (uint64_t i = begin; i < end; i++) x[i] = x[i] * t.coset[i];
      });
      if (!done) return CUZK_E_CANCELLED;
    }
    SpanTimer span(run, CUZK_SPAN_NTT, 1);
    return transform.to_natural(t.forward) ? CUZK_OK : CUZK_E_CANCELLED;
  });
}

}  // namespace CUZK_PATH
}  // namespace cuzk
