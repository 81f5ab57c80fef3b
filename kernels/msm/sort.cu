// Sorting the digits of all windows into buckets: a stable radix sort of (bucket, signed point index), window by window in one
// launch. Digits that are zero are dropped by the first pass. Each pass counts per tile, scans, and scatters.
#include "../ff/carry_cuda.hpp"
#include "../ntt/passes_cuda.hpp"

using namespace cuzk::CUZK_PATH;

namespace {

constexpr uint32_t threads = 512, items = 16, tile_size = threads * items, warps = threads / 32;

// Entries of a window: all digits in the first pass, then what the first pass kept.
struct Range {
  uint32_t begin, end;
};

// An entry as a thread holds it: key + 1, in the first pass with the sign in bit 31; 0 for none.
CUZK_INLINE uint32_t read(uint32_t i, bool first, Range range, const uint32_t *keys) {
  if (i >= range.end) return 0;
  return first ? keys[i] : keys[i] + 1;
}
CUZK_INLINE bool is_entry(uint32_t word) { return (word & 0x7fffffffu) != 0; }
CUZK_INLINE uint32_t key_of(uint32_t word) { return (word & 0x7fffffffu) - 1; }

CUZK_INLINE Range range_of(uint32_t window, bool first, uint32_t n, const uint32_t *starts) {
  if (first) return {window * n, window * n + n};
  return {starts[window], starts[window + 1]};
}

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

// Lanes whose digit equals this lane's.
CUZK_INLINE uint32_t match(uint32_t digit, bool valid, uint32_t bits) {
  uint32_t mask = __ballot_sync(0xffffffffu, valid);
  for (uint32_t b = 0; b < bits; b++) {
    const bool bit = digit >> b & 1;
    const uint32_t set = __ballot_sync(0xffffffffu, bit);
    mask &= bit ? set : ~set;
  }
  return mask;
}

}  // namespace

// counts[(window * bins + bin) * tiles + tile]; grid (tiles, windows).
extern "C" __global__ void __launch_bounds__(threads)
    sort_count(const uint32_t *keys, uint32_t n, const uint32_t *starts, int first, uint32_t shift, uint32_t bits, uint32_t *counts) {
  extern __shared__ uint32_t shared[];
  const uint32_t bins = 1u << bits, window = blockIdx.y;
  for (uint32_t b = threadIdx.x; b < bins; b += threads) shared[b] = 0;
  __syncthreads();
  const Range range = range_of(window, first, n, starts);
  const uint32_t base = range.begin + blockIdx.x * tile_size;
  if (base < range.end) {
    for (uint32_t j = 0; j < items; j++) {
      const uint32_t word = read(base + j * threads + threadIdx.x, first, range, keys);
      if (is_entry(word)) atomicAdd(shared + (key_of(word) >> shift & (bins - 1)), 1u);
    }
  }
  __syncthreads();
  for (uint32_t b = threadIdx.x; b < bins; b += threads)
    counts[((uint64_t)window * bins + b) * gridDim.x + blockIdx.x] = shared[b];
}

// offsets: the exclusive prefix sums of counts. key_high is added to the keys written, times the window.
extern "C" __global__ void __launch_bounds__(threads, 2)
    sort_scatter(const uint32_t *keys, const uint32_t *values, uint32_t n, const uint32_t *starts, int first, uint32_t shift,
                 uint32_t bits, const uint32_t *offsets, uint32_t *out_keys, uint32_t *out_values, uint32_t key_high,
                 uint32_t reversed_bits) {
  extern __shared__ uint32_t shared[];
  const uint32_t bins = 1u << bits, window = blockIdx.y;
  const Range range = range_of(window, first, n, starts);
  const uint32_t base = range.begin + blockIdx.x * tile_size;
  if (base >= range.end) return;
  uint32_t *scratch = shared;                // 33 words
  uint32_t *bin_start = shared + 64;         // bins
  uint32_t *bin_target = bin_start + bins;   // bins: where the bin's first entry goes, less bin_start
  uint32_t *staged_keys = bin_target + bins, *staged_values = staged_keys + tile_size;
  uint16_t *counters = reinterpret_cast<uint16_t *>(staged_values + tile_size);  // [warp][bin]
  for (uint32_t b = threadIdx.x; b < bins * warps / 2; b += threads) reinterpret_cast<uint32_t *>(counters)[b] = 0;
  __syncthreads();

  const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  uint16_t *mine = counters + warp * bins;
  uint32_t words[items], ranks[items / 2];  // two ranks a word
CUZK_UNROLL
  for (uint32_t j = 0; j < items; j++) words[j] = read(base + (warp * items + j) * 32 + lane, first, range, keys);
CUZK_UNROLL
  for (uint32_t j = 0; j < items; j++) {
    const bool valid = is_entry(words[j]);
    const uint32_t digit = key_of(words[j]) >> shift & (bins - 1);
    const uint32_t peers = match(digit, valid, bits);
    const uint32_t before = __popc(peers & ((1u << lane) - 1));
    uint32_t old = 0;
    if (valid) old = mine[digit];
    __syncwarp();
    if (valid && before == 0) mine[digit] = (uint16_t)(old + __popc(peers));
    __syncwarp();
    const uint32_t rank = old + before;
    ranks[j / 2] = j % 2 ? ranks[j / 2] | rank << 16 : rank;
  }
  __syncthreads();

  // Counters become positions within the bin; bins get their places in the tile.
  uint32_t sums[2], both = 0;
  for (uint32_t k = 0; k < 2; k++) {
    const uint32_t b = threadIdx.x * 2 + k;
    uint32_t sum = 0;
    if (b < bins) {
      for (uint32_t w = 0; w < warps; w++) {
        const uint32_t c = counters[w * bins + b];
        counters[w * bins + b] = (uint16_t)sum;
        sum += c;
      }
    }
    sums[k] = sum;
    both += sum;
  }
  uint32_t total;
  uint32_t place = block_exclusive(both, scratch, &total);
  for (uint32_t k = 0; k < 2; k++) {
    const uint32_t b = threadIdx.x * 2 + k;
    if (b < bins) {
      bin_start[b] = place;
      bin_target[b] = offsets[((uint64_t)window * bins + b) * gridDim.x + blockIdx.x] - place;
    }
    place += sums[k];
  }
  __syncthreads();
CUZK_UNROLL
  for (uint32_t j = 0; j < items; j++) {
    if (!is_entry(words[j])) continue;
    const uint32_t key = key_of(words[j]), digit = key >> shift & (bins - 1);
    const uint32_t p = bin_start[digit] + mine[digit] + (ranks[j / 2] >> (16 * (j % 2)) & 0xffff);
    const uint32_t i = base + (warp * items + j) * 32 + lane, index = i - range.begin;
    staged_keys[p] = key;
    staged_values[p] =
        first ? (reversed_bits ? reverse_bits(index, reversed_bits) : index) | (words[j] & 0x80000000u) : values[i];
  }
  __syncthreads();
  for (uint32_t p = threadIdx.x; p < total; p += threads) {
    const uint32_t key = staged_keys[p], to = bin_target[key >> shift & (bins - 1)] + p;
    out_keys[to] = key + key_high * window;
    out_values[to] = staged_values[p];
  }
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

// starts[w] = where window w's entries begin, starts[windows] = how many there are.
extern "C" __global__ void sort_starts(const uint32_t *offsets, uint64_t pitch, const uint32_t *total, uint32_t windows, uint32_t *starts) {
  const uint32_t w = threadIdx.x;
  if (w < windows) starts[w] = offsets[w * pitch];
  if (w == windows) starts[w] = *total;
}

// begin[b], end[b] of every bucket that occurs; the others keep what they had (0, 0).
extern "C" __global__ void __launch_bounds__(256)
    bucket_bounds(const uint32_t *keys, const uint32_t *starts, uint32_t windows, uint32_t *begin, uint32_t *end) {
  const uint32_t total = starts[windows];
  for (uint32_t i = blockIdx.x * 256 + threadIdx.x; i < total; i += gridDim.x * 256) {
    const uint32_t key = keys[i];
    if (i == 0 || keys[i - 1] != key) begin[key] = i;
    if (i + 1 == total || keys[i + 1] != key) end[key] = i + 1;
  }
}
