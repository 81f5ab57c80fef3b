// The vectors of a Groth16 proof: rows of A and B times the witness, and the scalars of the H query; -DCUZK_FIELD=
// names Fr.
#include "../ntt/passes_cuda.hpp"

using namespace cuzk::CUZK_PATH;
using F = CUZK_FIELD;

namespace {

// A prepared entry: the signal, and in the two top bits what it is multiplied by.
enum Kind : uint32_t { PLUS_ONE = 0, MINUS_ONE = 1, GENERAL = 2 };
constexpr uint32_t kind_shift = 30, signal_mask = (1u << kind_shift) - 1;

struct Matrices {
  const uint32_t *starts;   // 2 * rows + 1: where the entries of A's rows begin, then of B's
  const uint32_t *entries;  // kind and signal
  const uint32_t *places;   // of a general entry: its coefficient's place
  const F *coefficients;    // Montgomery form
};

CUZK_INLINE F term(const Matrices &m, uint32_t k, const F *witness) {
  const uint32_t entry = m.entries[k], kind = entry >> kind_shift;
  F x = F::load(witness + (entry & signal_mask));
  if (kind == MINUS_ONE) x = -x;
  if (kind == GENERAL) x = x * F::load(m.coefficients + m.places[k]);
  return x;
}

}  // namespace

// a = A w, b = B w, c = a b for rows of at most `longest` entries; longer rows are left to evaluate_long. The witness
// is in Montgomery form. reversed_bits: row i goes to i's bit reversal; 0: to i. c may be null.
extern "C" __global__ void __launch_bounds__(128)
    evaluate_rows(const uint32_t *starts, const uint32_t *entries, const uint32_t *places, const F *coefficients,
    const F *witness,
                  uint32_t rows, uint32_t longest, uint32_t reversed_bits, F *a, F *b, F *c) {
  const Matrices m{starts, entries, places, coefficients};
  for (uint32_t row = blockIdx.x * 128 + threadIdx.x; row < rows; row += gridDim.x * 128) {
    F sums[2];
    bool whole = true;
CUZK_UNROLL
    for (uint32_t k = 0; k < 2; k++) {
      const uint32_t begin = starts[k * rows + row], end = starts[k * rows + row + 1];
      sums[k] = F::zero();
      whole = whole && end - begin <= longest;
      if (end - begin <= longest)
        for (uint32_t i = begin; i < end; i++) sums[k] += term(m, i, witness);
    }
    const uint32_t to = reversed_bits ? reverse_bits(row, reversed_bits) : row;
    sums[0].store(a + to);
    sums[1].store(b + to);
    if (c && whole) (sums[0] * sums[1]).store(c + to);
  }
}

// One block a listed row, both matrices.
extern "C" __global__ void __launch_bounds__(128)
    evaluate_long(const uint32_t *starts, const uint32_t *entries, const uint32_t *places, const F *coefficients,
    const F *witness,
                  uint32_t rows, const uint32_t *list, uint32_t reversed_bits, F *a, F *b, F *c) {
  __shared__ F scratch[128];
  const Matrices m{starts, entries, places, coefficients};
  const uint32_t row = list[blockIdx.x], to = reversed_bits ? reverse_bits(row, reversed_bits) : row;
  F sums[2];
  for (uint32_t k = 0; k < 2; k++) {
    const uint32_t begin = starts[k * rows + row], end = starts[k * rows + row + 1];
    F sum = F::zero();
    for (uint32_t i = begin + threadIdx.x; i < end; i += 128) sum += term(m, i, witness);
    scratch[threadIdx.x] = sum;
    for (uint32_t half = 64; half; half /= 2) {
      __syncthreads();
      if (threadIdx.x < half) scratch[threadIdx.x] += scratch[threadIdx.x + half];
    }
    __syncthreads();
    sums[k] = scratch[0];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    sums[0].store(a + to);
    sums[1].store(b + to);
    if (c) (sums[0] * sums[1]).store(c + to);
  }
}

// a = a b / n^2 - c / n, leaving Montgomery form: what unscaled inverse transforms of size n have left in a, b and c
// is taken out by the multiplications that leave Montgomery form anyway. factors: 1/n^2 and 1/n, plain.
extern "C" __global__ void __launch_bounds__(128) h_join(F *a, const F *b, const F *c, const F *factors, uint64_t n) {
  const F square = F::load(factors), single = F::load(factors + 1);
  for (uint64_t i = blockIdx.x * (uint64_t)128 + threadIdx.x; i < n; i += (uint64_t)gridDim.x * 128)
    (F::load(a + i) * F::load(b + i) * square - F::load(c + i) * single).store(a + i);
}
