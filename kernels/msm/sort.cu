// Sorting the digits of all windows into buckets, in two partitions by counting.
//
// The first one goes by window and the bucket's high bits; zero digits are dropped. It counts a tile at a time, scans
// the counts and scatters. The second one works within those segments on the low bits, again a tile at a time,
// however long a segment is: it counts into the buckets themselves, whose scanned counts are the begins of the
// buckets, and then each tile reserves its places there. The order within a bucket is left open, so ranks are atomic
// counts in shared memory.
#include "../ntt/passes_cuda.hpp"

using namespace cuzk::CUZK_PATH;

namespace {

constexpr uint32_t threads = 512, items = 16, tile_size = threads * items, most_bins = 2048;

CUZK_INLINE uint32_t warp_exclusive(uint32_t x) {
  const uint32_t lane = threadIdx.x & 31;
  uint32_t s = x;
  for (uint32_t d = 1; d < 32; d *= 2) {
    const uint32_t y = __shfl_up_sync(0xffffffffu, s, d);
    if (lane >= d) s += y;
  }
  return s - x;
}

// Exclusive prefix of one value a thread; *total gets the sum. scratch: one word a warp.
CUZK_INLINE uint32_t block_exclusive(uint32_t x, uint32_t *scratch, uint32_t *total) {
  const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32, count = blockDim.x / 32;
  const uint32_t e = warp_exclusive(x);
  __syncthreads();
  if (lane == 31) scratch[warp] = e + x;
  __syncthreads();
  if (warp == 0) {
    const uint32_t y = lane < count ? scratch[lane] : 0, z = warp_exclusive(y);
    __syncwarp();
    if (lane < count) scratch[lane] = z;
    if (lane == 31) scratch[32] = z + y;
  }
  __syncthreads();
  *total = scratch[32];
  return e + scratch[warp];
}

// A tile's entries: ranks within their bins, and where each bin starts in the tile. Lanes that all hold one bin, as a
// skewed witness gives them, count together.
CUZK_INLINE uint32_t rank_in(uint32_t *counts, uint32_t bin, bool valid) {
  const uint32_t first = __shfl_sync(0xffffffffu, bin, 0);
  if (__all_sync(0xffffffffu, valid && bin == first)) {
    uint32_t base = 0;
    if ((threadIdx.x & 31) == 0) base = atomicAdd(counts + bin, 32u);
    return __shfl_sync(0xffffffffu, base, 0) + (threadIdx.x & 31);
  }
  return valid ? atomicAdd(counts + bin, 1u) : 0;
}

// counts become the bins' starts in the tile; targets[b], whatever `target(b, count)` says, less the start. Returns
// the tile's total.
template <class Target>
CUZK_INLINE uint32_t place_bins(uint32_t *counts, uint32_t *targets, uint32_t bins, uint32_t *scratch, Target target) {
  const uint32_t each = (bins + threads - 1) / threads;  // at most 4
  uint32_t own[most_bins / threads], sum = 0;
CUZK_UNROLL
  for (uint32_t k = 0; k < most_bins / threads; k++) {
    const uint32_t b = threadIdx.x * each + k;
    own[k] = k < each && b < bins ? counts[b] : 0;
    sum += own[k];
  }
  uint32_t total;
  uint32_t place = block_exclusive(sum, scratch, &total);
CUZK_UNROLL
  for (uint32_t k = 0; k < most_bins / threads; k++) {
    const uint32_t b = threadIdx.x * each + k;
    if (k < each && b < bins) {
      counts[b] = place;
      targets[b] = (own[k] ? target(b, own[k]) : 0) - place;
    }
    place += own[k];
  }
  __syncthreads();
  return total;
}

struct Segment {
  uint32_t number, begin, end;  // of its entries, this tile's
};

// The segment of a tile: the last one whose first tile is not behind it.
CUZK_INLINE Segment segment_of(uint32_t tile, const uint32_t *starts, const uint32_t *tiles, uint32_t segments) {
  uint32_t low = 0, high = segments;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (tiles[middle] <= tile)
      low = middle;
    else
      high = middle;
  }
  const uint32_t begin = starts[low] + (tile - tiles[low]) * tile_size, end = starts[low + 1];
  return {low, begin, end - begin < tile_size ? end : begin + tile_size};
}

}  // namespace

// counts[(window * bins + bin) * tiles + tile] of the keys' bits from `shift` on; grid (tiles, windows). digits: |d|
// or 0, sign in bit 31; the key is |d| - 1.
extern "C" __global__ void __launch_bounds__(threads)
    sort_count(const uint32_t *digits, uint32_t n, uint32_t shift, uint32_t bins, uint32_t *counts) {
  extern __shared__ uint32_t shared[];
  for (uint32_t b = threadIdx.x; b < bins; b += threads) shared[b] = 0;
  __syncthreads();
  const uint32_t *window = digits + (uint64_t)blockIdx.y * n;
  const uint32_t base = blockIdx.x * tile_size;
CUZK_UNROLL
  for (uint32_t j = 0; j < items; j++) {
    const uint32_t i = base + j * threads + threadIdx.x;
    const uint32_t size = i < n ? window[i] & 0x7fffffffu : 0;
    rank_in(shared, (size - 1) >> shift & (bins - 1), size != 0);
  }
  __syncthreads();
  for (uint32_t b = threadIdx.x; b < bins; b += threads)
    counts[((uint64_t)blockIdx.y * bins + b) * gridDim.x + blockIdx.x] = shared[b];
}

// offsets: the exclusive prefix sums of counts. Writes the keys' bits below `shift` and the signed point indices.
extern "C" __global__ void __launch_bounds__(threads, 2)
    sort_scatter(const uint32_t *digits, uint32_t n, uint32_t shift, uint32_t bins, const uint32_t *offsets, uint16_t
    *out_keys,
                 uint32_t *out_values, uint32_t reversed_bits) {
  extern __shared__ uint32_t shared[];
  uint32_t *scratch = shared, *counts = shared + 64, *targets = counts + bins;
  uint32_t *staged_keys = targets + bins, *staged_values = staged_keys + tile_size;
  for (uint32_t b = threadIdx.x; b < bins; b += threads) counts[b] = 0;
  __syncthreads();
  const uint32_t *window = digits + (uint64_t)blockIdx.y * n;
  const uint32_t base = blockIdx.x * tile_size;
  uint32_t ranks[items / 2];  // two ranks a word; digits are read twice, to leave registers for two blocks
CUZK_UNROLL
  for (uint32_t j = 0; j < items; j++) {
    const uint32_t i = base + j * threads + threadIdx.x;
    const uint32_t size = i < n ? window[i] & 0x7fffffffu : 0;
    const uint32_t rank = rank_in(counts, (size - 1) >> shift & (bins - 1), size != 0);
    ranks[j / 2] = j % 2 ? ranks[j / 2] | rank << 16 : rank;
  }
  __syncthreads();
  const uint32_t total = place_bins(counts, targets, bins, scratch, [&](uint32_t b, uint32_t) {
    return offsets[((uint64_t)blockIdx.y * bins + b) * gridDim.x + blockIdx.x];
  });
CUZK_UNROLL
  for (uint32_t j = 0; j < items; j++) {
    const uint32_t i = base + j * threads + threadIdx.x;
    const uint32_t word = i < n ? window[i] : 0, size = word & 0x7fffffffu;
    if (size == 0) continue;
    const uint32_t p = counts[(size - 1) >> shift & (bins - 1)] + (ranks[j / 2] >> (16 * (j % 2)) & 0xffff);
    staged_keys[p] = size - 1;
    // Second halves, from 2^reversed_bits on, are reversed among themselves.
    const uint32_t point = reversed_bits ? reverse_bits(i, reversed_bits) | i >> reversed_bits << reversed_bits : i;
    staged_values[p] = point | (word & 0x80000000u);
  }
  __syncthreads();
  for (uint32_t p = threadIdx.x; p < total; p += threads) {
    const uint32_t key = staged_keys[p], to = targets[key >> shift & (bins - 1)] + p;
    out_keys[to] = (uint16_t)(key & ((1u << shift) - 1));
    out_values[to] = staged_values[p];
  }
}

// One block. starts[s] = where segment s begins, tiles[s] = its first tile, for s <= segments.
extern "C" __global__ void __launch_bounds__(1024)
    sort_segments(const uint32_t *offsets, uint32_t pitch, const uint32_t *total, uint32_t segments, uint32_t *starts,
                  uint32_t *tiles) {
  __shared__ uint32_t scratch[64];
  uint32_t carry = 0;
  for (uint32_t base = 0; base < segments; base += 1024) {
    const uint32_t s = base + threadIdx.x;
    uint32_t begin = 0, count = 0, sum;
    if (s < segments) {
      begin = offsets[(uint64_t)s * pitch];
      const uint32_t end = s + 1 < segments ? offsets[(uint64_t)(s + 1) * pitch] : *total;
      count = (end - begin + tile_size - 1) / tile_size;
      starts[s] = begin;
    }
    const uint32_t before = block_exclusive(count, scratch, &sum);
    if (s < segments) tiles[s] = carry + before;
    carry += sum;
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    starts[segments] = *total;
    tiles[segments] = carry;
  }
}

// buckets[segment * bins + low bits] += their entries in a tile.
extern "C" __global__ void __launch_bounds__(threads)
    bucket_count(const uint16_t *keys, const uint32_t *starts, const uint32_t *tiles, uint32_t segments, uint32_t bins,
                 uint32_t *buckets) {
  extern __shared__ uint32_t shared[];
  if (blockIdx.x >= tiles[segments]) return;
  for (uint32_t b = threadIdx.x; b < bins; b += threads) shared[b] = 0;
  __syncthreads();
  const Segment segment = segment_of(blockIdx.x, starts, tiles, segments);
CUZK_UNROLL
  for (uint32_t j = 0; j < items; j++) {
    const uint32_t i = segment.begin + j * threads + threadIdx.x;
    rank_in(shared, i < segment.end ? keys[i] : 0, i < segment.end);
  }
  __syncthreads();
  for (uint32_t b = threadIdx.x; b < bins; b += threads)
    if (shared[b]) atomicAdd(buckets + (uint64_t)segment.number * bins + b, shared[b]);
}

// Values to their buckets. ends[b] starts as the begin of bucket b and becomes its end.
extern "C" __global__ void __launch_bounds__(threads, 2)
    bucket_scatter(const uint16_t *keys, const uint32_t *values, const uint32_t *starts, const uint32_t *tiles,
    uint32_t segments,
                   uint32_t bins, uint32_t *ends, uint32_t *out) {
  extern __shared__ uint32_t shared[];
  if (blockIdx.x >= tiles[segments]) return;
  uint32_t *scratch = shared, *counts = shared + 64, *targets = counts + bins, *staged_values = targets + bins;
  uint16_t *staged_keys = reinterpret_cast<uint16_t *>(staged_values + tile_size);
  for (uint32_t b = threadIdx.x; b < bins; b += threads) counts[b] = 0;
  __syncthreads();
  const Segment segment = segment_of(blockIdx.x, starts, tiles, segments);
  uint32_t ranked[items];  // key and rank
CUZK_UNROLL
  for (uint32_t j = 0; j < items; j++) {
    const uint32_t i = segment.begin + j * threads + threadIdx.x;
    ranked[j] = i < segment.end ? keys[i] : 0;
  }
CUZK_UNROLL
  for (uint32_t j = 0; j < items; j++)
    ranked[j] |= rank_in(counts, ranked[j], segment.begin + j * threads + threadIdx.x < segment.end) << 16;
  __syncthreads();
  const uint32_t total = place_bins(counts, targets, bins, scratch, [&](uint32_t b, uint32_t count) {
    return atomicAdd(ends + (uint64_t)segment.number * bins + b, count);
  });
CUZK_UNROLL
  for (uint32_t j = 0; j < items; j++) {
    const uint32_t i = segment.begin + j * threads + threadIdx.x;
    if (i >= segment.end) continue;
    const uint32_t key = ranked[j] & 0xffff, p = counts[key] + (ranked[j] >> 16);
    staged_keys[p] = (uint16_t)key;
    staged_values[p] = values[i];
  }
  __syncthreads();
  for (uint32_t p = threadIdx.x; p < total; p += threads) out[targets[staged_keys[p]] + p] = staged_values[p];
}

// ---- exclusive prefix sums of n words, in place, in three launches ----

extern "C" __global__ void __launch_bounds__(256) scan_tiles(uint32_t *data, uint64_t n, uint32_t *sums) {
  __shared__ uint32_t scratch[64];
  __shared__ uint32_t tile[4096 + 128];
  const uint64_t base = (uint64_t)blockIdx.x * 4096;
  for (uint32_t j = 0; j < 16; j++) {
    const uint32_t u = j * 256 + threadIdx.x;
    tile[u + u / 32] = base + u < n ? data[base + u] : 0;
  }
  __syncthreads();
  uint32_t x[16], sum = 0;
  for (uint32_t j = 0; j < 16; j++) {
    const uint32_t u = threadIdx.x * 16 + j;
    x[j] = sum;
    sum += tile[u + u / 32];
  }
  uint32_t total;
  const uint32_t before = block_exclusive(sum, scratch, &total);
  for (uint32_t j = 0; j < 16; j++) {
    const uint32_t u = threadIdx.x * 16 + j;
    tile[u + u / 32] = before + x[j];
  }
  __syncthreads();
  for (uint32_t j = 0; j < 16; j++) {
    const uint32_t u = j * 256 + threadIdx.x;
    if (base + u < n) data[base + u] = tile[u + u / 32];
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

// One block: sums become their exclusive prefixes, sums[count] the total.
extern "C" __global__ void __launch_bounds__(1024) scan_sums(uint32_t *sums, uint32_t count) {
  __shared__ uint32_t scratch[64];
  uint32_t carry = 0;
  for (uint32_t base = 0; base < count; base += 1024) {
    const uint32_t i = base + threadIdx.x;
    const uint32_t x = i < count ? sums[i] : 0;
    uint32_t total;
    const uint32_t e = block_exclusive(x, scratch, &total);
    if (i < count) sums[i] = carry + e;
    carry += total;
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[count] = carry;
}

extern "C" __global__ void __launch_bounds__(256) scan_add(uint32_t *data, uint64_t n, const uint32_t *sums) {
  const uint64_t base = (uint64_t)blockIdx.x * 4096;
  const uint32_t add = sums[blockIdx.x];
  for (uint32_t j = 0; j < 16; j++) {
    const uint64_t i = base + j * 256 + threadIdx.x;
    if (i < n) data[i] += add;
  }
}
