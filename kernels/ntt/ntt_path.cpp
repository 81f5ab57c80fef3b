// Transforms of the C interface.
#include "../capi/path_functions.hpp"
#include "../capi/select.hpp"
#include "transform.hpp"
#ifdef CUZK_PATH_IFMA
#include "transform_ifma.hpp"
#endif

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

// data[i] changes places with data[reverse(i)].
template <class Fr>
bool reorder(Fr *data, uint32_t log_n, Run &run) {
  return run.ranges(uint64_t{1} << log_n, 1 << 14, [&](uint64_t begin, uint64_t end, unsigned) {
    for (uint64_t i = begin; i < end; i++) {
      const uint64_t j = reverse_bits(i, log_n);
      if (j <= i) continue;
      const Fr t = data[i];
      data[i] = data[j];
      data[j] = t;
    }
  });
}

// f(transform) with this path's transform for the size.
template <class Fr, class F>
auto with_transform(Fr *data, uint32_t log_n, Run &run, F &&f) {
#ifdef CUZK_PATH_IFMA
  if (log_n >= TransformX8<Fr>::min_log_n) {
    TransformX8<Fr> transform(data, log_n, run);
    return f(transform);
  }
#endif
  Transform<Fr, TileScalar<Fr>> transform(data, log_n, run);
  return f(transform);
}

// What the twiddles of this path and size are multiplied by.
template <class Fr>
Fr table_factor([[maybe_unused]] uint32_t log_n) {
#ifdef CUZK_PATH_IFMA
  if (log_n >= TransformX8<Fr>::min_log_n) return TransformX8<Fr>::radix_factor();
#endif
  return Fr::one();
}

}  // namespace

int ntt_table(int curve, uint32_t log_n, void *table, Run &run) {
  return with_fr(curve, [&](auto type) -> int {
    using Fr = typename decltype(type)::type;
    const auto t = TwiddleTable<Fr>::at(table, log_n);
    const uint32_t bits = log_n ? log_n - 1 : 0;
    const Fr omega = Roots<Fr>::omega(log_n);
    const Fr factor = table_factor<Fr>(log_n), scaled = factor * Roots<Fr>::inverse_of_size(log_n);
    const bool done = fill_reversed(t.forward, bits, factor, omega, run) &&
                      fill_reversed(t.inverse, bits, factor, omega.inverse(), run) &&
                      fill_reversed(t.coset, log_n, scaled, Roots<Fr>::coset_shift(log_n), run);
    return done ? CUZK_OK : CUZK_E_CANCELLED;
  });
}

int ntt(int curve, void *data, uint32_t log_n, int flags, const void *table, Run &run) {
  return with_fr(curve, [&](auto type) -> int {
    using Fr = typename decltype(type)::type;
    SpanTimer span(run, CUZK_SPAN_NTT);
    const auto t = TwiddleTable<Fr>::at(table, log_n);
    Fr *x = static_cast<Fr *>(data);
    const Fr *twiddles = flags & CUZK_NTT_INVERSE ? t.inverse : t.forward;
    const bool in_reversed = flags & CUZK_NTT_IN_REVERSED, out_reversed = flags & CUZK_NTT_OUT_REVERSED;
    bool done = with_transform(x, log_n, run, [&](auto &transform) {
      return in_reversed ? transform.to_natural(twiddles) : transform.to_reversed(twiddles, nullptr);
    });
    if (done && in_reversed == out_reversed) done = reorder(x, log_n, run);
    if (done && (flags & CUZK_NTT_INVERSE))
      done = scale(x, uint64_t{1} << log_n, Roots<Fr>::inverse_of_size(log_n), run);
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
    return with_transform(x, log_n, run, [&](auto &transform) -> int {
      {
        SpanTimer span(run, CUZK_SPAN_COSET);  // the inverse transform and the coset's factors
        if (!transform.to_reversed(t.inverse, t.coset)) return CUZK_E_CANCELLED;
      }
      SpanTimer span(run, CUZK_SPAN_NTT);
      return transform.to_natural(t.forward) ? CUZK_OK : CUZK_E_CANCELLED;
    });
  });
}

}  // namespace CUZK_PATH
}  // namespace cuzk
