// What of a key is prepared on the device, and what of a witness is picked for it: the matrices from section 4 of a
// zkey, by rows; the scalars of the points that are there. -DCUZK_FIELD= names Fr.
#include "../ntt/passes_cuda.hpp"

using namespace cuzk::CUZK_PATH;
using F = CUZK_FIELD;

namespace {

constexpr uint32_t entry_words = 11;  // matrix, row, signal, and the value times R^2

// As in vectors.cu, in the two top bits of an entry.
constexpr uint32_t minus_one = 1u << 30, general = 2u << 30;

CUZK_INLINE uint32_t kind_of(const F &coefficient) {
  if (coefficient == F::one()) return 0;
  return coefficient == -F::one() ? minus_one : general;
}

}  // namespace

// Entries first .. first + n - 1 of the section: counts[matrix * domain + row] goes up for each, *generals for each
// whose coefficient is neither one nor minus one. The lowest number of an entry out of range goes into *bad, which
// starts at 2^64 - 1.
extern "C" __global__ void __launch_bounds__(256)
    matrix_count(const uint32_t *section, uint64_t n, uint64_t first, uint32_t domain, uint32_t signals,
                 uint32_t *counts, uint64_t *generals, uint64_t *bad) {
  uint32_t mine = 0;
  for (uint64_t i = blockIdx.x * (uint64_t)256 + threadIdx.x; i < n; i += (uint64_t)gridDim.x * 256) {
    const uint32_t *entry = section + i * entry_words;
    const uint32_t matrix = entry[0], row = entry[1];
    const F value = F::load_words(entry + 3);
    if (matrix > 1 || row >= domain || entry[2] >= signals || !value.is_reduced()) {
      atomicMin(bad, first + i);
      continue;
    }
    atomicAdd(counts + (uint64_t)matrix * domain + row, 1u);
    mine += kind_of(value.from_mont()) == general;
  }
  if (mine) atomicAdd(generals, (uint64_t)mine);
}

// The same entries, which are in range, to the places of their rows; `next` holds where the next one of each row goes.
// General coefficients, in Montgomery form, are stored in the order in which they come, counted by *generals.
extern "C" __global__ void __launch_bounds__(256)
    matrix_fill(const uint32_t *section, uint64_t n, uint32_t domain, uint32_t *next, uint64_t *generals,
                uint32_t *entries, uint32_t *places, F *coefficients) {
  for (uint64_t i = blockIdx.x * (uint64_t)256 + threadIdx.x; i < n; i += (uint64_t)gridDim.x * 256) {
    const uint32_t *entry = section + i * entry_words;
    const F value = F::load_words(entry + 3).from_mont();
    const uint32_t kind = kind_of(value);
    const uint32_t to = atomicAdd(next + (uint64_t)entry[0] * domain + entry[1], 1u);
    entries[to] = entry[2] | kind;
    // One addition for the warp's threads that are here.
    const uint32_t here = __activemask(), those = __ballot_sync(here, kind == general);
    uint32_t place = 0;
    if (kind == general) {
      const uint32_t lane = threadIdx.x % 32, leader = (uint32_t)__ffs((int)those) - 1;
      if (lane == leader) place = (uint32_t)atomicAdd(generals, (uint64_t)__popc(those));
      place = __shfl_sync(those, place, (int)leader) + (uint32_t)__popc(those & ((1u << lane) - 1));
      value.store(coefficients + place);
    }
    places[to] = place;
  }
}

// Rows with more than `longest` entries in one of the matrices: counted, and listed where there is a list.
extern "C" __global__ void __launch_bounds__(256)
    matrix_long(const uint32_t *starts, uint32_t domain, uint32_t longest, uint32_t *list, uint64_t *count) {
  for (uint32_t row = blockIdx.x * 256 + threadIdx.x; row < domain; row += gridDim.x * 256) {
    const uint64_t b = (uint64_t)domain + row;
    if (starts[row + 1] - starts[row] <= longest && starts[b + 1] - starts[b] <= longest) continue;
    const uint32_t place = (uint32_t)atomicAdd(count, (uint64_t)1);
    if (list) list[place] = row;
  }
}

// out[i] = the scalar of number first + index[i], or first + i without an index; it stands at that number's bit reversal
// where `bits` is not 0. Zero where point i (of `words` 64-bit words) is at infinity, if there are points: an MSM has no
// work for it then.
extern "C" __global__ void __launch_bounds__(256)
    gather_scalars(const F *scalars, const uint32_t *index, uint32_t first, uint32_t n, uint32_t bits,
                   const uint64_t *points, uint32_t words, F *out) {
  for (uint32_t i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
    bool present = !points;
    for (uint32_t k = 0; k < words && !present; ++k) present = points[(uint64_t)i * words + k] != 0;
    const uint32_t number = first + (index ? index[i] : i);
    const F value = F::load(scalars + (bits ? reverse_bits(number, bits) : number));
    (present ? value : F::zero()).store(out + i);
  }
}
