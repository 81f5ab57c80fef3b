// The inner part of the transforms: `levels` consecutive levels on a tile of 2^levels rows and some columns.
//
// A level splits each of its blocks in two halves and joins their elements in pairs, with one twiddle for the whole
// block: block j of a level has children 2j and 2j + 1, and its twiddle is T[j], T in bit-reversed order.
//   decimating in time    (natural order in, reversed out):  (u, v) -> (u + v T[j], u - v T[j]), large blocks first
//   decimating in frequency (reversed in, natural out):      (u, v) -> (u + v, (u - v) T[j]),    small blocks first
#pragma once
#include "../ff/fp.hpp"

namespace cuzk {
namespace CUZK_PATH {

template <class Fr>
struct TileScalar {
  static constexpr uint32_t column_count = 4;  // columns a gathered tile holds: two cache lines

  // Row r, column c at x[r * pitch + c]; `block` is the tile's block number at its first level.
  static void forward(Fr *x, uint32_t levels, size_t pitch, size_t columns, const Fr *twiddles, uint64_t block) {
    for (uint32_t level = 0; level < levels; level++) {
      const size_t half = size_t{1} << (levels - level - 1);
      for (size_t q = 0; q < size_t{1} << level; q++) {
        const Fr w = twiddles[(block << level) + q];
        for (size_t r = 2 * q * half; r < (2 * q + 1) * half; r++) {
          Fr *a = x + r * pitch, *b = x + (r + half) * pitch;
          for (size_t c = 0; c < columns; c++) {
            const Fr u = a[c], v = b[c] * w;
            a[c] = u + v;
            b[c] = u - v;
          }
        }
      }
    }
  }

  static void backward(Fr *x, uint32_t levels, size_t pitch, size_t columns, const Fr *twiddles, uint64_t block) {
    for (uint32_t level = levels; level-- > 0;) {
      const size_t half = size_t{1} << (levels - level - 1);
      for (size_t q = 0; q < size_t{1} << level; q++) {
        const Fr w = twiddles[(block << level) + q];
        for (size_t r = 2 * q * half; r < (2 * q + 1) * half; r++) {
          Fr *a = x + r * pitch, *b = x + (r + half) * pitch;
          for (size_t c = 0; c < columns; c++) {
            const Fr u = a[c], v = b[c];
            a[c] = u + v;
            b[c] = (u - v) * w;
          }
        }
      }
    }
  }
};

}  // namespace CUZK_PATH
}  // namespace cuzk
