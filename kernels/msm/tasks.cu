// Buckets to tasks ordered by length; see tasks_cuda.hpp.
#include "tasks_cuda.hpp"

using namespace cuzk::CUZK_PATH;

namespace {

constexpr uint32_t most_lengths = 1024;

// Written by these kernels for the ones that follow; zeroed before.
struct Totals {
  uint32_t tasks, slots, long_buckets, unused;
  uint32_t groups[most_levels + 1];
};

}  // namespace

// histogram[length] of tasks; list of long buckets; empty buckets' sums marked as infinite (zz = 0).
extern "C" __global__ void __launch_bounds__(256)
    task_count(const uint32_t *begin, const uint32_t *end, uint32_t buckets, uint32_t longest, uint32_t *histogram,
    Totals *totals,
               LongBucket *list, char *sums, uint32_t coordinate_bytes) {
  __shared__ uint32_t local[most_lengths + 1];
  for (uint32_t i = threadIdx.x; i <= longest; i += 256) local[i] = 0;
  __syncthreads();
  for (uint32_t b = blockIdx.x * 256 + threadIdx.x; b < buckets; b += gridDim.x * 256) {
    const uint32_t length = end[b] - begin[b];
    if (length == 0) {
      uint4 *zz = reinterpret_cast<uint4 *>(sums + (uint64_t)b * 4 * coordinate_bytes + 2 * coordinate_bytes);
      for (uint32_t k = 0; k < coordinate_bytes / 16; k++) zz[k] = make_uint4(0, 0, 0, 0);
    } else if (length <= longest) {
      atomicAdd(local + length, 1u);
    } else {
      const Cut cut = Cut::of(length, longest);
      LongBucket entry{};
      entry.bucket = b;
      entry.start = begin[b];
      entry.length = length;
      entry.slot = atomicAdd(&totals->slots, cut.pieces);
      for (uint32_t level = 0; level < most_levels; level++) {
        const uint32_t number = Group::number(cut.pieces, level);
        entry.group[level] = atomicAdd(totals->groups + level, number);
        if (number == 1) break;
      }
      list[atomicAdd(&totals->long_buckets, 1u)] = entry;
      if (cut.longer) atomicAdd(histogram + cut.shorter_length + 1, cut.longer);
      atomicAdd(histogram + cut.shorter_length, cut.pieces - cut.longer);
    }
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i <= longest; i += 256)
    if (local[i]) atomicAdd(histogram + i, local[i]);
}

// One thread: places of the tasks, see Classes. classes: 2 (longest + 1) words.
extern "C" __global__ void task_order(uint32_t *histogram, uint32_t longest, uint32_t width, Totals *totals,
                                      uint32_t *classes) {
  const Classes tables{classes, classes + longest + 1};
  totals->tasks = tables.order(histogram, longest, width);
}

extern "C" __global__ void __launch_bounds__(256)
    task_place(const uint32_t *begin, const uint32_t *end, uint32_t buckets, uint32_t longest, uint32_t *positions,
               Task *tasks) {
  __shared__ uint32_t local[most_lengths + 1];
  constexpr uint32_t each = 16;
  for (uint32_t base = blockIdx.x * 256 * each; base < buckets; base += gridDim.x * 256 * each) {
    for (uint32_t i = threadIdx.x; i <= longest; i += 256) local[i] = 0;
    __syncthreads();
    uint32_t length[each], rank[each], start[each];
CUZK_UNROLL
    for (uint32_t j = 0; j < each; j++) {
      const uint32_t b = base + j * 256 + threadIdx.x;
      length[j] = 0;
      if (b < buckets) {
        start[j] = begin[b];
        length[j] = end[b] - start[j];
      }
      if (length[j] > longest) length[j] = 0;
      if (length[j]) rank[j] = atomicAdd(local + length[j], 1u);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i <= longest; i += 256)
      if (local[i]) local[i] = atomicAdd(positions + i, local[i]);
    __syncthreads();
CUZK_UNROLL
    for (uint32_t j = 0; j < each; j++)
      if (length[j]) tasks[local[length[j]] + rank[j]] = Task{start[j], length[j], base + j * 256 + threadIdx.x};
    __syncthreads();
  }
}

// A block takes long buckets, its threads their pieces and groups.
extern "C" __global__ void __launch_bounds__(256)
    task_pieces(const LongBucket *list, const Totals *totals, uint32_t buckets, uint32_t longest, uint32_t *positions,
    Task *tasks,
                Group *groups, uint32_t level_pitch) {
  __shared__ uint32_t place[2];
  for (uint32_t l = blockIdx.x; l < totals->long_buckets; l += gridDim.x) {
    const LongBucket entry = list[l];
    const Cut cut = Cut::of(entry.length, longest);
    __syncthreads();
    if (threadIdx.x == 0) {
      place[0] = cut.longer ? atomicAdd(positions + cut.shorter_length + 1, cut.longer) : 0;
      place[1] = atomicAdd(positions + cut.shorter_length, cut.pieces - cut.longer);
    }
    __syncthreads();
    const uint32_t base = buckets + entry.slot;
    for (uint32_t i = threadIdx.x; i < cut.pieces; i += 256) {
      const uint32_t at = i < cut.longer ? place[0] + i : place[1] + i - cut.longer;
      tasks[at] = Task{entry.start + cut.offset(i), cut.length(i), base + i};
    }
    for (uint32_t level = 0; level < most_levels; level++) {
      const uint32_t number = Group::number(cut.pieces, level);
      for (uint32_t g = threadIdx.x; g < number; g += 256)
        groups[(uint64_t)level * level_pitch + entry.group[level] + g] =
            Group::of(cut.pieces, level, g, base, entry.bucket);
      if (number == 1) break;
    }
  }
}
