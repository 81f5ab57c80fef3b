// A stream of 32-bit numbers from a 256-bit seed: ChaCha (Bernstein, "ChaCha, a variant of Salsa20", 2008) with 12
// rounds.
#pragma once
#include <string.h>

#include "../ff/config.hpp"

namespace cuzk {
namespace CUZK_PATH {

class ChaCha12 {
 public:
  // seed: 32 bytes; `stream` tells streams of one seed apart.
  ChaCha12(const unsigned char *seed, uint64_t stream) {
    static constexpr uint32_t constants[4] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    memcpy(state_, constants, sizeof constants);
    memcpy(state_ + 4, seed, 32);
    state_[12] = state_[13] = 0;
    memcpy(state_ + 14, &stream, sizeof stream);
  }

  uint32_t next() {
    if (position_ == 16) refill();
    return block_[position_++];
  }

 private:
  static void quarter(uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d) {
    a += b, d = rotate(d ^ a, 16);
    c += d, b = rotate(b ^ c, 12);
    a += b, d = rotate(d ^ a, 8);
    c += d, b = rotate(b ^ c, 7);
  }
  static uint32_t rotate(uint32_t x, int n) { return x << n | x >> (32 - n); }

  void refill() {
    uint32_t x[16];
    memcpy(x, state_, sizeof x);
    for (int round = 0; round < 12; round += 2) {
      for (int i = 0; i < 4; i++) quarter(x[i], x[4 + i], x[8 + i], x[12 + i]);
      for (int i = 0; i < 4; i++) quarter(x[i], x[4 + (i + 1) % 4], x[8 + (i + 2) % 4], x[12 + (i + 3) % 4]);
    }
    for (int i = 0; i < 16; i++) block_[i] = x[i] + state_[i];
    if (++state_[12] == 0) ++state_[13];
    position_ = 0;
  }

  uint32_t state_[16], block_[16];
  int position_ = 16;
};

}  // namespace CUZK_PATH
}  // namespace cuzk
