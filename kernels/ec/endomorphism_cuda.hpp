// The endomorphism (x, y) -> (beta x, y) of both groups, beta a cube root of unity. It multiplies points of order r by
// lambda, a cube root of unity modulo r; other points of the curve must not be given to it.
//
// Gallant, Lambert and Vanstone, "Faster Point Multiplication on Elliptic Curves with Efficient Endomorphisms": a scalar
// k is k1 + k2 lambda with halves of 127 bits and a sign. (k1, k2) is (k, 0) less the nearest combination of two short
// vectors (a1, -b1), (a2, b2) of the lattice {(u, v): u + v lambda = 0 mod r}, a1 b2 + a2 b1 = r. BLS12-381: lambda =
// x^2 - 1, vectors (lambda, -1) and (1, lambda + 1). BN254: from Euclid's algorithm on r and lambda.
#pragma once
#include "curves.hpp"

namespace cuzk {
namespace CUZK_PATH {

constexpr uint32_t half_bits = 128;  // bits that windows of a half must cover: one more than it has

struct Bn254Lattice {
  static constexpr uint32_t a1[4] = {0x7d4f1128, 0x8211bbeb, 0xeeb859fc, 0x6f4d8248};
  static constexpr uint32_t b1[4] = {0x94d213e3, 0x89d32568, 0x00000000, 0x00000000};
  static constexpr uint32_t a2[4] = {0x94d213e3, 0x89d32568, 0x00000000, 0x00000000};
  static constexpr uint32_t b2[4] = {0x1221250b, 0x0be4e154, 0xeeb859fd, 0x6f4d8248};
  // 2^288 b2 / r and 2^288 b1 / r, rounded.
  static constexpr uint32_t first[6] = {0x149d5410, 0x00ff6565, 0x5398fd03, 0xa773d2d2, 0x4ccef014, 0x00000002};
  static constexpr uint32_t second[6] = {0x6eb9c714, 0xc7e0b3d7, 0xd91d232e, 0x00000002, 0x00000000, 0x00000000};
};

struct Bls12_381Lattice {
  static constexpr uint32_t a1[4] = {0xffffffff, 0x00000000, 0x0001a402, 0xac45a401};
  static constexpr uint32_t b1[4] = {0x00000001, 0x00000000, 0x00000000, 0x00000000};
  static constexpr uint32_t a2[4] = {0x00000001, 0x00000000, 0x00000000, 0x00000000};
  static constexpr uint32_t b2[4] = {0x00000000, 0x00000001, 0x0001a402, 0xac45a401};
  // 2^288 b2 / r and 2^288 b1 / r, rounded.
  static constexpr uint32_t first[6] = {0x389f49a7, 0xf6cfee30, 0x63f6e522, 0xe01faadd, 0x7c6becf1, 0x00000001};
  static constexpr uint32_t second[6] = {0x355094ee, 0x00000002, 0x00000000, 0x00000000, 0x00000000, 0x00000000};
};

template <class Fr>
struct LatticeOf;
template <>
struct LatticeOf<Bn254Fr> {
  using Lattice = Bn254Lattice;
};
template <>
struct LatticeOf<Bls12_381Fr> {
  using Lattice = Bls12_381Lattice;
};

// beta of G1, plain; that of G2 is its square.
template <class Fq>
struct CubeRoot;
template <>
struct CubeRoot<Bn254Fq> {
  static constexpr Limbs<4> plain{{0xe4bd44e5607cfd48, 0xc28f069fbb966e3d, 0x5e6dd9e7e0acccb0,
                                   0x30644e72e131a029}};
};
template <>
struct CubeRoot<Bls12_381Fq> {
  static constexpr Limbs<6> plain{{0x8bfd00000000aaac, 0x409427eb4f49fffd, 0x897d29650fb85f9b,
                                   0xaa0d857d89759ad4, 0xec02408663d4de85, 0x1a0111ea397fe699}};
};

template <class Fq>
CUZK_INLINE Fq cube_root(int group) {
  const Fq beta = Fq::raw(CubeRoot<Fq>::plain).to_mont();
  return group == 1 ? beta : beta.sqr();
}

// A number by its absolute value.
template <int N>
struct Signed {
  uint32_t v[N];
  bool negative;
};

// The two halves of a scalar.
template <class Fr>
struct Halves {
  Signed<4> k1, k2;

  // From plain limbs below r.
  static CUZK_INLINE Halves of(const Fr &k) {
    using Lattice = typename LatticeOf<Fr>::Lattice;
    uint32_t c1[4], c2[4], u[5], v[5], t[5];
    nearest(c1, k, Lattice::first);
    nearest(c2, k, Lattice::second);
    // Modulo 2^160: u = k - c1 a1 - c2 a2, v = c1 b1 - c2 b2.
CUZK_UNROLL
    for (int i = 0; i < 5; i++) u[i] = k.v[i];
    multiply<4, 4, 5>(t, c1, Lattice::a1);
    subtract(u, t);
    multiply<4, 4, 5>(t, c2, Lattice::a2);
    subtract(u, t);
    multiply<4, 4, 5>(v, c1, Lattice::b1);
    multiply<4, 4, 5>(t, c2, Lattice::b2);
    subtract(v, t);
    return {absolute(u), absolute(v)};
  }

 private:
  // r = a b mod 2^(32 R).
  template <int A, int B, int R>
  static CUZK_INLINE void multiply(uint32_t *r, const uint32_t *a, const uint32_t *b) {
CUZK_UNROLL
    for (int i = 0; i < R; i++) r[i] = 0;
CUZK_UNROLL
    for (int i = 0; i < A; i++) {
      uint64_t carry = 0;
CUZK_UNROLL
      for (int j = 0; j < B && i + j < R; j++) {
        carry += (uint64_t)a[i] * b[j] + r[i + j];
        r[i + j] = (uint32_t)carry;
        carry >>= 32;
      }
      if (i + B < R) r[i + B] = (uint32_t)carry;
    }
  }
  // c = k factor / 2^288, rounded.
  static CUZK_INLINE void nearest(uint32_t *c, const Fr &k, const uint32_t *factor) {
    static_assert(Fr::N == 8, "a scalar of 256 bits");
    uint32_t t[14];
    multiply<8, 6, 14>(t, k.v, factor);
    uint64_t carry = t[8] >> 31;
CUZK_UNROLL
    for (int i = 0; i < 4; i++) {
      carry += t[9 + i];
      c[i] = (uint32_t)carry;
      carry >>= 32;
    }
  }
  static CUZK_INLINE void subtract(uint32_t *a, const uint32_t *b) {
    a[0] = carry::sub_cc(a[0], b[0]);
CUZK_UNROLL
    for (int i = 1; i < 4; i++) a[i] = carry::subc_cc(a[i], b[i]);
    a[4] = carry::subc(a[4], b[4]);
  }
  static CUZK_INLINE Signed<4> absolute(const uint32_t *a) {
    Signed<4> r;
    r.negative = a[4] >> 31;
    const uint32_t mask = r.negative ? 0xffffffffu : 0;
    r.v[0] = carry::add_cc(a[0] ^ mask, mask & 1);
CUZK_UNROLL
    for (int i = 1; i < 3; i++) r.v[i] = carry::addc_cc(a[i] ^ mask, 0);
    r.v[3] = carry::addc(a[3] ^ mask, 0);
    return r;
  }
};

}  // namespace CUZK_PATH
}  // namespace cuzk
