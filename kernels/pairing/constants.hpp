// Printed by tools/pairing_constants.py, which derives and checks them; do not edit.
// Field elements are in Montgomery form, least significant limb first.
#pragma once
#include <cstdint>

namespace cuzk {

struct Bn254PairingConstants {
  // xi^(i (q - 1) / 6), i = 1 to 5: w^(i q) = gamma1[i - 1] * w^i.
  static constexpr uint64_t gamma1[5][2][4] = {
  {{0xaf9ba69633144907, 0xca6b1d7387afb78a, 0x11bded5ef08a2087, 0x02f34d751a1f3a7c},
   {0xa222ae234c492d72, 0xd00f02a4565de15b, 0xdc2ff3a253dfc926, 0x10a75716b3899551}},
  {{0xb5773b104563ab30, 0x347f91c8a9aa6454, 0x7a007127242e0991, 0x1956bcd8118214ec},
   {0x6e849f1ea0aa4757, 0xaa1c7b6d89f89141, 0xb6e713cdfae0ca3a, 0x26694fbb4e82ebc3}},
  {{0xe4bbdd0c2936b629, 0xbb30f162e133bacb, 0x31a9d1b6f9645366, 0x253570bea500f8dd},
   {0xa1d77ce45ffe77c7, 0x07affd117826d1db, 0x6d16bd27bb7edc6b, 0x2c87200285defecc}},
  {{0x7361d77f843abe92, 0xa5bb2bd3273411fb, 0x9c941f314b3e2399, 0x15df9cddbb9fd3ec},
   {0x5dddfd154bd8c949, 0x62cb29a5a4445b60, 0x37bc870a0c7dd2b9, 0x24830a9d3171f0fd}},
  {{0xc970692f41690fe7, 0xe240342127694b0b, 0x32bee66b83c459e8, 0x12aabced0ab08841},
   {0x0d485d2340aebfa9, 0x05193418ab2fcc57, 0xd3b0a40b8a4910f5, 0x2f21ebb535d2925a}}};
  // xi^(i (q^2 - 1) / 6), i = 1 to 5, all in Fq.
  static constexpr uint64_t gamma2[5][4] = {
   {0xca8d800500fa1bf2, 0xf0c5d61468b39769, 0x0e201271ad0d4418, 0x04290f65bad856e6},
   {0x3350c88e13e80b9c, 0x7dce557cdb5e56b9, 0x6001b4b8b615564a, 0x2682e617020217e0},
   {0x68c3488912edefaa, 0x8d087f6872aabf4f, 0x51e1a24709081231, 0x2259d6b14729c0fa},
   {0x71930c11d782e155, 0xa6bb947cffbe3323, 0xaa303344d4741444, 0x2c3b3f0d26594943},
   {0x08cfc388c494f1ab, 0x19b315148d1373d4, 0x584e90fdcb6c0213, 0x09e1685bdf2f8849}};
  // 3 b of the twist.
  static constexpr uint64_t twist_3b[2][4] = {
   {0x3baa927cb62e0d6a, 0xd71e7c52d1b664fd, 0x03873e63d95d4664, 0x0e75b5b1082ab8f4},
   {0xaab7c6667596fe35, 0x31d21a78bb6a27ba, 0x85dd7297680401ff, 0x03c52d6adf39a7e9}};
  // 6 x + 2, the Miller loop, most significant digit first.
  static constexpr int8_t loop[66] = {
    1, 0, -1, 0, 1, 0, 0, 0, -1, 0, -1, 0, 0, 0, -1, 0, 1, 0, -1, 0, 0, -1, 0, 0, 0, 0, 0, 1, 0, 0, -1, 0,
    1, 0, 0, -1, 0, 0, 0, 0, -1, 0, 1, 0, 0, 0, -1, 0, -1, 0, 0, 1, 0, 0, 0, -1, 0, 0, -1, 0, 1, 0, 1, 0,
    0, 0};
  // x, most significant digit first.
  static constexpr int8_t x[63] = {
    1, 0, 0, 1, 0, 0, -3, 0, 0, 0, 0, -3, 0, 0, 0, 3, 0, 0, 1, 0, 0, 1, 0, 0, 3, 0, 0, 0, -3, 0, 0, 0,
    1, 0, 0, 0, 3, 0, 0, -3, 0, 0, 0, -3, 0, 0, 1, 0, 0, 0, 1, 0, 0, -3, 0, 0, 0, 0, -1, 0, 0, 0, 1};
};

struct Bls12_381PairingConstants {
  // xi^(i (q - 1) / 6), i = 1 to 5: w^(i q) = gamma1[i - 1] * w^i.
  static constexpr uint64_t gamma1[5][2][6] = {
  {{0x07089552b319d465, 0xc6695f92b50a8313, 0x97e83cccd117228f,
    0xa35baecab2dc29ee, 0x1ce393ea5daace4d, 0x08f2220fb0fb66eb},
   {0xb2f66aad4ce5d646, 0x5842a06bfc497cec, 0xcf4895d42599d394,
    0xc11b9cba40a8e8d0, 0x2e3813cbe5a0de89, 0x110eefda88847faf}},
  {{0x0000000000000000, 0x0000000000000000, 0x0000000000000000,
    0x0000000000000000, 0x0000000000000000, 0x0000000000000000},
   {0xcd03c9e48671f071, 0x5dab22461fcda5d2, 0x587042afd3851b95,
    0x8eb60ebe01bacb9e, 0x03f97d6e83d050d2, 0x18f0206554638741}},
  {{0x7bcfa7a25aa30fda, 0xdc17dec12a927e7c, 0x2f088dd86b4ebef1,
    0xd1ca2087da74d4a7, 0x2da2596696cebc1d, 0x0e2b7eedbbfd87d2},
   {0x7bcfa7a25aa30fda, 0xdc17dec12a927e7c, 0x2f088dd86b4ebef1,
    0xd1ca2087da74d4a7, 0x2da2596696cebc1d, 0x0e2b7eedbbfd87d2}},
  {{0x890dc9e4867545c3, 0x2af322533285a5d5, 0x50880866309b7e2c,
    0xa20d1b8c7e881024, 0x14e4f04fe2db9068, 0x14e56d3f1564853a},
   {0x0000000000000000, 0x0000000000000000, 0x0000000000000000,
    0x0000000000000000, 0x0000000000000000, 0x0000000000000000}},
  {{0x82d83cf50dbce43f, 0xa2813e53df9d018f, 0xc6f0caa53c65e181,
    0x7525cf528d50fe95, 0x4a85ed50f4798a6b, 0x171da0fd6cf8eebd},
   {0x3726c30af242c66c, 0x7c2ac1aad1b6fe70, 0xa04007fbba4b14a2,
    0xef517c3266341429, 0x0095ba654ed2226b, 0x02e370eccc86f7dd}}};
  // xi^(i (q^2 - 1) / 6), i = 1 to 5, all in Fq.
  static constexpr uint64_t gamma2[5][6] = {
   {0xecfb361b798dba3a, 0xc100ddb891865a2c, 0x0ec08ff1232bda8e,
    0xd5c13cc6f1ca4721, 0x47222a47bf7b5c04, 0x0110f184e51c5f59},
   {0x30f1361b798a64e8, 0xf3b8ddab7ece5a2a, 0x16a8ca3ac61577f7,
    0xc26a2ff874fd029b, 0x3636b76660701c6e, 0x051ba4ab241b6160},
   {0x43f5fffffffcaaae, 0x32b7fff2ed47fffd, 0x07e83a49a2e99d69,
    0xeca8f3318332bb7a, 0xef148d1ea0f4c069, 0x040ab3263eff0206},
   {0xcd03c9e48671f071, 0x5dab22461fcda5d2, 0x587042afd3851b95,
    0x8eb60ebe01bacb9e, 0x03f97d6e83d050d2, 0x18f0206554638741},
   {0x890dc9e4867545c3, 0x2af322533285a5d5, 0x50880866309b7e2c,
    0xa20d1b8c7e881024, 0x14e4f04fe2db9068, 0x14e56d3f1564853a}};
  // 3 b of the twist.
  static constexpr uint64_t twist_3b[2][6] = {
   {0x447600000027552e, 0xdcb8009a43480020, 0x6f7ee9ce4a6e8b59,
    0xb10330b7c0a95bc6, 0x6140b1fcfb1e54b7, 0x0381be097f0bb4e1},
   {0x447600000027552e, 0xdcb8009a43480020, 0x6f7ee9ce4a6e8b59,
    0xb10330b7c0a95bc6, 0x6140b1fcfb1e54b7, 0x0381be097f0bb4e1}};
  // |x|, x < 0: the Miller loop and an exponent, most significant digit first.
  static constexpr int8_t loop[65] = {
    1, 0, -1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0};
  // (|x| + 1) / 3, most significant digit first.
  static constexpr int8_t third[63] = {
    1, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, -3, 0, 0, 3, 0, 0, -3, 0, 0, 3, 0, 0,
    -3, 0, 0, 3, 0, 0, -3, 0, 0, 3, 0, 0, -3, 0, 0, 3, 0, 0, 3, 0, 0, -3, 0, 0, 3, 0, 0, -3, 0, 0, 3};
};

}  // namespace cuzk
