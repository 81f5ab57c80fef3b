// Launches of the transform's passes; -DCUZK_FIELD= names the field. See passes_cuda.hpp for the algorithm.
#include "passes_cuda.hpp"

#ifndef CUZK_NTT_UNIT
#define CUZK_NTT_UNIT 1  // multiplications by 1 are left out
#endif

using namespace cuzk::CUZK_PATH;
using F = CUZK_FIELD;

namespace {

constexpr int each = CUZK_NTT_EACH, elements = 1 << each;  // a thread
using Pass = NttPass<each>;

extern __shared__ Quad tile_memory[];

CUZK_INLINE void put(uint32_t log_tile, uint32_t u, const F &x) {
  const uint32_t s = ntt_slot(u);
  tile_memory[s] = Quad{x.v[0], x.v[1], x.v[2], x.v[3]};
  tile_memory[s + (1u << log_tile)] = Quad{x.v[4], x.v[5], x.v[6], x.v[7]};
}

CUZK_INLINE F get(uint32_t log_tile, uint32_t u) {
  const uint32_t s = ntt_slot(u);
  const Quad a = tile_memory[s], b = tile_memory[s + (1u << log_tile)];
  return F{{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

// Whether all threads of this warp are at factor 0; only then is it worth another copy of the code.
CUZK_INLINE bool all_at_zero(const Pass &pass, uint32_t q) {
#if CUZK_NTT_UNIT
  return pass.first == 0 && __all_sync(__activemask(), q == 0);
#else
  return false;
#endif
}

enum Flags : uint32_t { INVERSE = 1, COSET = 2, SCALE_TABLE = 4, SCALE_CONSTANT = 8 };

// All stages of a pass, group after group, the first one first or, with MERGE, the last one. Between two groups the
// elements change hands.
template <bool MERGE>
CUZK_INLINE void stages(F (&x)[elements], const Pass &pass, int groups, uint32_t tile, const F *table,
                        const NttMode &mode) {
  const uint32_t t = threadIdx.x, log_tile = pass.log_tile();
  constexpr int step = MERGE ? -1 : 1;
  for (int g = MERGE ? groups - 1 : 0; MERGE ? g >= 0 : g < groups; g += step) {
    if (g != (MERGE ? groups - 1 : 0)) {
      __syncthreads();
#pragma unroll
      for (int j = 0; j < elements; j++) put(log_tile, pass.element(g - step, t, j), x[j]);
      __syncthreads();
#pragma unroll
      for (int j = 0; j < elements; j++) x[j] = get(log_tile, pass.element(g, t, j));
    }
    const uint32_t stage = pass.stage(g);
    // A stage before the pass's first one is skipped; its factor number is that of the later stages, shifted.
    uint32_t q = pass.index(tile, pass.element(g, t, 0)) >> (pass.log_n - stage);
    if (mode.coset) q += 1u << stage;
    if (all_at_zero(pass, q)) {
      if (MERGE)
        merge_group<each, true>(x, q, pass.skipped(g), table, mode);
      else
        split_group<each, true>(x, q, pass.skipped(g), table, mode);
    } else if (MERGE) {
      merge_group<each, false>(x, q, pass.skipped(g), table, mode);
    } else {
      split_group<each, false>(x, q, pass.skipped(g), table, mode);
    }
  }
}

}  // namespace

// Natural to reversed order. Grid: tiles, vectors `stride` elements apart. Threads: tile / elements. Shared: 32 bytes
// an element of the tile. SCALE_CONSTANT multiplies the results by *constant.
extern "C" __global__ void __launch_bounds__(CUZK_NTT_THREADS, CUZK_NTT_BLOCKS)
    ntt_split(F *data, uint64_t stride, const F *table, uint32_t log_n, uint32_t first, uint32_t bits, uint32_t columns,
             uint32_t flags, const F *constant) {
  const Pass pass{log_n, first, bits, columns};
  const uint32_t t = threadIdx.x, tile = blockIdx.x, log_tile = pass.log_tile();
  const NttMode mode{(flags & INVERSE) != 0, (flags & COSET) != 0};
  data += stride * blockIdx.y;
  F x[elements];
#pragma unroll
  for (int j = 0; j < elements; j++) x[j] = F::load(data + pass.index(tile, pass.element(0, t, j)));
  const int groups = pass.groups();
  stages<false>(x, pass, groups, tile, table, mode);
  if (flags & SCALE_CONSTANT) {
    const F k = F::load(constant);
#pragma unroll
    for (int j = 0; j < elements; j++) x[j] = x[j] * k;
  }
  if (!pass.contiguous()) {
#pragma unroll
    for (int j = 0; j < elements; j++) x[j].store(data + pass.index(tile, pass.element(groups - 1, t, j)));
  } else {  // neighbours in a thread: put in order first
    __syncthreads();
#pragma unroll
    for (int j = 0; j < elements; j++) put(log_tile, pass.element(groups - 1, t, j), x[j]);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < elements; j++) {
      const uint32_t u = t + (uint32_t)j * blockDim.x;
      get(log_tile, u).store(data + pass.index(tile, u));
    }
  }
}

// Reversed to natural order. SCALE_TABLE multiplies what is read at position i by table[i] (coset), SCALE_CONSTANT
// the results.
extern "C" __global__ void __launch_bounds__(CUZK_NTT_THREADS, CUZK_NTT_BLOCKS)
    ntt_merge(F *data, uint64_t stride, const F *table, uint32_t log_n, uint32_t first, uint32_t bits, uint32_t columns,
             uint32_t flags, const F *constant) {
  const Pass pass{log_n, first, bits, columns};
  const uint32_t t = threadIdx.x, tile = blockIdx.x, log_tile = pass.log_tile();
  const NttMode mode{(flags & INVERSE) != 0, (flags & COSET) != 0};
  data += stride * blockIdx.y;
  F x[elements];
  const int groups = pass.groups();
  if (!pass.contiguous()) {
#pragma unroll
    for (int j = 0; j < elements; j++) x[j] = F::load(data + pass.index(tile, pass.element(groups - 1, t, j)));
  } else {
#pragma unroll
    for (int j = 0; j < elements; j++) {
      const uint32_t u = t + (uint32_t)j * blockDim.x, i = pass.index(tile, u);
      F y = F::load(data + i);
      if (flags & SCALE_TABLE) y = y * F::load(table + i);
      put(log_tile, u, y);
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < elements; j++) x[j] = get(log_tile, pass.element(groups - 1, t, j));
  }
  stages<true>(x, pass, groups, tile, table, mode);
  if (flags & SCALE_CONSTANT) {
    const F k = F::load(constant);
#pragma unroll
    for (int j = 0; j < elements; j++) x[j] = x[j] * k;
  }
#pragma unroll
  for (int j = 0; j < elements; j++) x[j].store(data + pass.index(tile, pass.element(0, t, j)));
}

// Sizes 2 and 4, one thread a vector.
extern "C" __global__ void ntt_tiny(F *data, uint64_t stride, const F *table, uint32_t log_n, uint32_t flags, const F
*constant,
                                    int backwards) {
  if (threadIdx.x) return;
  data += stride * blockIdx.x;
  const NttMode mode{(flags & INVERSE) != 0, (flags & COSET) != 0};
  const uint32_t n = 1u << log_n;
  if (flags & SCALE_TABLE)
    for (uint32_t i = 0; i < n; i++) (F::load(data + i) * F::load(table + i)).store(data + i);
  for (uint32_t step = 0; step < log_n; step++) {
    const uint32_t stage = backwards ? log_n - 1 - step : step, half = n >> (stage + 1);
    for (uint32_t i = 0; i < n; i++) {
      if (i & half) continue;
      F a = F::load(data + i), b = F::load(data + i + half);
      const uint32_t k = (i >> (log_n - stage)) + (mode.coset ? 1u << stage : 0);
      if (backwards)
        merge(a, b, k, table, mode);
      else
        split(a, b, k, table, mode);
      a.store(data + i);
      b.store(data + i + half);
    }
  }
  if (flags & SCALE_CONSTANT)
    for (uint32_t i = 0; i < n; i++) (F::load(data + i) * F::load(constant)).store(data + i);
}

// table[k] for k < n, from roots[j], the root of unity of order 2^(j + 2).
extern "C" __global__ void ntt_table(F *table, const F *roots, uint64_t n) {
  for (uint64_t k = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; k < n; k += (uint64_t)gridDim.x * blockDim.x) {
    F x = F::one();
    for (int j = 0; j < 31; j++)
      if (k >> j & 1) x = x * F::load(roots + j);
    x.store(table + k);
  }
}

// Exchanges i and reverse(i), in place.
extern "C" __global__ void ntt_reverse(F *data, uint64_t stride, uint32_t log_n) {
  data += stride * blockIdx.y;
  const uint32_t n = 1u << log_n;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const uint32_t j = reverse_bits(i, log_n);
    if (i >= j) continue;
    const F a = F::load(data + i), b = F::load(data + j);
    b.store(data + i);
    a.store(data + j);
  }
}

// data[i] *= base^i, or base^reverse(i) when log_n is not 0; powers[j] = base^(2^j).
extern "C" __global__ void ntt_scale_powers(F *data, uint64_t stride, const F *powers, uint64_t n, uint32_t log_n) {
  data += stride * blockIdx.y;
  for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += (uint64_t)gridDim.x * blockDim.x) {
    const uint32_t e = log_n ? reverse_bits((uint32_t)i, log_n) : (uint32_t)i;
    F x = F::load(data + i);
    for (int j = 0; j < 32; j++)
      if (e >> j & 1) x = x * F::load(powers + j);
    x.store(data + i);
  }
}
