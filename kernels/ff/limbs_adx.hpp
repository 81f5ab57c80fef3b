// Limb arithmetic for x86-64 with bmi2 (mulx) and adx (adcx, adox): two carry chains run side by side in each row of
// the product, which compilers do not produce from C++.
//
// Same contract as LimbsPortable. Method: Intel white paper "New Instructions Supporting Large Integer Arithmetic on
// Intel Architecture Processors"; the row-wise no-carry reduction is the one of limbs_portable.hpp.
#pragma once
#include "params.hpp"

namespace cuzk {
namespace CUZK_PATH {

// Each limb is a memory operand of its own: an offset added to one operand is not an address for every assembler.
#define CUZK_LIMBS_4(x, v) [x##0] "m"(v[0]), [x##1] "m"(v[1]), [x##2] "m"(v[2]), [x##3] "m"(v[3])
#define CUZK_LIMBS_6(x, v) CUZK_LIMBS_4(x, v), [x##4] "m"(v[4]), [x##5] "m"(v[5])

// One row, first word of b: t = a * b[0], top word in %[c].
#define CUZK_ROW_FIRST(j, tj, tn) \
  "mulxq %[a" #j "], %[l], %[" #tn "]\n\t" \
  "adoxq %[l], %[" #tj "]\n\t"
// One row, later words: t += a * b[i].
#define CUZK_ROW_NEXT(j, tj, tn) \
  "mulxq %[a" #j "], %[l], %[c]\n\t" \
  "adoxq %[l], %[" #tj "]\n\t" \
  "adcxq %[c], %[" #tn "]\n\t"
// t = (t + m p) / 2^64, one word: t[j-1] takes what belongs there, t[j] is rebuilt.
#define CUZK_ROW_REDUCE(j, tp, tj) \
  "adcxq %[" #tj "], %[" #tp "]\n\t" \
  "mulxq %[p" #j "], %[l], %[" #tj "]\n\t" \
  "adoxq %[l], %[" #tp "]\n\t"

#define CUZK_REDUCE_HEAD \
  "movabsq %[n0], %%rdx\n\t" \
  "imulq %[t0], %%rdx\n\t" \
  "xorl %k[z], %k[z]\n\t" \
  "mulxq %[p0], %[l], %[h]\n\t" \
  "adcxq %[t0], %[l]\n\t" \
  "movq %[h], %[t0]\n\t"

template <class P, int N>
struct AdxKernel;

#define CUZK_REDUCE_4 \
  CUZK_REDUCE_HEAD CUZK_ROW_REDUCE(1, t0, t1) CUZK_ROW_REDUCE(2, t1, t2) CUZK_ROW_REDUCE(3, t2, t3) \
  "adcxq %[z], %[t3]\n\t" \
  "adoxq %[c], %[t3]\n\t"
#define CUZK_STEP_4(i) \
  "movq %[b" #i "], %%rdx\n\t" \
  "xorl %k[z], %k[z]\n\t" \
  CUZK_ROW_NEXT(0, t0, t1) CUZK_ROW_NEXT(1, t1, t2) CUZK_ROW_NEXT(2, t2, t3) \
  "mulxq %[a3], %[l], %[c]\n\t" \
  "adoxq %[l], %[t3]\n\t" \
  "adcxq %[z], %[c]\n\t" \
  "adoxq %[z], %[c]\n\t" \
  CUZK_REDUCE_4

template <class P>
struct AdxKernel<P, 4> {
  static CUZK_INLINE void reduce_once(uint64_t *r, uint64_t t0, uint64_t t1, uint64_t t2, uint64_t t3) {
    uint64_t s0 = t0, s1 = t1, s2 = t2, s3 = t3;
    __asm__("subq %[p0], %[s0]\n\t"
            "sbbq %[p1], %[s1]\n\t"
            "sbbq %[p2], %[s2]\n\t"
            "sbbq %[p3], %[s3]\n\t"
            "cmovcq %[t0], %[s0]\n\t"
            "cmovcq %[t1], %[s1]\n\t"
            "cmovcq %[t2], %[s2]\n\t"
            "cmovcq %[t3], %[s3]\n\t"
            : [s0] "+&r"(s0), [s1] "+&r"(s1), [s2] "+&r"(s2), [s3] "+&r"(s3)
            : [t0] "r"(t0), [t1] "r"(t1), [t2] "r"(t2), [t3] "r"(t3),
              CUZK_LIMBS_4(p, P::modulus)
            : "cc");
    r[0] = s0, r[1] = s1, r[2] = s2, r[3] = s3;
  }

  static CUZK_INLINE void add(uint64_t *r, const uint64_t *a, const uint64_t *b) {
    uint64_t t0 = a[0], t1 = a[1], t2 = a[2], t3 = a[3];
    __asm__("addq %[b0], %[t0]\n\t"
            "adcq %[b1], %[t1]\n\t"
            "adcq %[b2], %[t2]\n\t"
            "adcq %[b3], %[t3]\n\t"
            : [t0] "+&r"(t0), [t1] "+&r"(t1), [t2] "+&r"(t2), [t3] "+&r"(t3)
            : [b0] "rm"(b[0]), [b1] "rm"(b[1]), [b2] "rm"(b[2]), [b3] "rm"(b[3])
            : "cc");
    reduce_once(r, t0, t1, t2, t3);
  }

  static CUZK_INLINE void sub(uint64_t *r, const uint64_t *a, const uint64_t *b) {
    uint64_t t0 = a[0], t1 = a[1], t2 = a[2], t3 = a[3], mask;
    __asm__("subq %[b0], %[t0]\n\t"
            "sbbq %[b1], %[t1]\n\t"
            "sbbq %[b2], %[t2]\n\t"
            "sbbq %[b3], %[t3]\n\t"
            "sbbq %[m], %[m]\n\t"
            : [t0] "+&r"(t0), [t1] "+&r"(t1), [t2] "+&r"(t2), [t3] "+&r"(t3), [m] "=&r"(mask)
            : [b0] "rm"(b[0]), [b1] "rm"(b[1]), [b2] "rm"(b[2]), [b3] "rm"(b[3])
            : "cc");
    const uint64_t p0 = P::modulus[0] & mask, p1 = P::modulus[1] & mask;
    const uint64_t p2 = P::modulus[2] & mask, p3 = P::modulus[3] & mask;
    __asm__("addq %[p0], %[t0]\n\t"
            "adcq %[p1], %[t1]\n\t"
            "adcq %[p2], %[t2]\n\t"
            "adcq %[p3], %[t3]\n\t"
            : [t0] "+&r"(t0), [t1] "+&r"(t1), [t2] "+&r"(t2), [t3] "+&r"(t3)
            : [p0] "r"(p0), [p1] "r"(p1), [p2] "r"(p2), [p3] "r"(p3)
            : "cc");
    r[0] = t0, r[1] = t1, r[2] = t2, r[3] = t3;
  }

  static CUZK_INLINE void mul(uint64_t *r, const uint64_t *a, const uint64_t *b) {
    uint64_t t0, t1, t2, t3, c, l, h, z;
    __asm__("movq %[b0], %%rdx\n\t"
            "xorl %k[z], %k[z]\n\t"
            "mulxq %[a0], %[t0], %[t1]\n\t"
            CUZK_ROW_FIRST(1, t1, t2) CUZK_ROW_FIRST(2, t2, t3) CUZK_ROW_FIRST(3, t3, c)
            "adoxq %[z], %[c]\n\t"
            CUZK_REDUCE_4 CUZK_STEP_4(1) CUZK_STEP_4(2) CUZK_STEP_4(3)
            : [t0] "=&r"(t0), [t1] "=&r"(t1), [t2] "=&r"(t2), [t3] "=&r"(t3), [c] "=&r"(c), [l] "=&r"(l), [h] "=&r"(h),
              [z] "=&r"(z)
            : CUZK_LIMBS_4(a, a), CUZK_LIMBS_4(b, b),
              CUZK_LIMBS_4(p, P::modulus), [n0] "i"(Montgomery<P>::n0)
            : "rdx", "cc");
    reduce_once(r, t0, t1, t2, t3);
  }
};

#define CUZK_REDUCE_6 \
  CUZK_REDUCE_HEAD CUZK_ROW_REDUCE(1, t0, t1) CUZK_ROW_REDUCE(2, t1, t2) CUZK_ROW_REDUCE(3, t2, t3) \
  CUZK_ROW_REDUCE(4, t3, t4) CUZK_ROW_REDUCE(5, t4, t5) \
  "adcxq %[z], %[t5]\n\t" \
  "adoxq %[c], %[t5]\n\t"
#define CUZK_STEP_6(i) \
  "movq %[b" #i "], %%rdx\n\t" \
  "xorl %k[z], %k[z]\n\t" \
  CUZK_ROW_NEXT(0, t0, t1) CUZK_ROW_NEXT(1, t1, t2) CUZK_ROW_NEXT(2, t2, t3) CUZK_ROW_NEXT(3, t3, t4) \
  CUZK_ROW_NEXT(4, t4, t5) \
  "mulxq %[a5], %[l], %[c]\n\t" \
  "adoxq %[l], %[t5]\n\t" \
  "adcxq %[z], %[c]\n\t" \
  "adoxq %[z], %[c]\n\t" \
  CUZK_REDUCE_6

template <class P>
struct AdxKernel<P, 6> {
  static CUZK_INLINE void reduce_once(uint64_t *r, uint64_t t0, uint64_t t1, uint64_t t2, uint64_t t3, uint64_t t4,
                                      uint64_t t5) {
    uint64_t s0 = t0, s1 = t1, s2 = t2, s3 = t3, s4 = t4, s5 = t5;
    __asm__("subq %[p0], %[s0]\n\t"
            "sbbq %[p1], %[s1]\n\t"
            "sbbq %[p2], %[s2]\n\t"
            "sbbq %[p3], %[s3]\n\t"
            "sbbq %[p4], %[s4]\n\t"
            "sbbq %[p5], %[s5]\n\t"
            "cmovcq %[t0], %[s0]\n\t"
            "cmovcq %[t1], %[s1]\n\t"
            "cmovcq %[t2], %[s2]\n\t"
            "cmovcq %[t3], %[s3]\n\t"
            "cmovcq %[t4], %[s4]\n\t"
            "cmovcq %[t5], %[s5]\n\t"
            : [s0] "+&r"(s0), [s1] "+&r"(s1), [s2] "+&r"(s2), [s3] "+&r"(s3), [s4] "+&r"(s4), [s5] "+&r"(s5)
            : [t0] "rm"(t0), [t1] "rm"(t1), [t2] "rm"(t2), [t3] "rm"(t3), [t4] "rm"(t4), [t5] "rm"(t5),
              CUZK_LIMBS_4(p, P::modulus), [p4] "m"(P::modulus[4]), [p5] "m"(P::modulus[5])
            : "cc");
    r[0] = s0, r[1] = s1, r[2] = s2, r[3] = s3, r[4] = s4, r[5] = s5;
  }

  static CUZK_INLINE void add(uint64_t *r, const uint64_t *a, const uint64_t *b) {
    uint64_t t0 = a[0], t1 = a[1], t2 = a[2], t3 = a[3], t4 = a[4], t5 = a[5];
    __asm__("addq %[b0], %[t0]\n\t"
            "adcq %[b1], %[t1]\n\t"
            "adcq %[b2], %[t2]\n\t"
            "adcq %[b3], %[t3]\n\t"
            "adcq %[b4], %[t4]\n\t"
            "adcq %[b5], %[t5]\n\t"
            : [t0] "+&r"(t0), [t1] "+&r"(t1), [t2] "+&r"(t2), [t3] "+&r"(t3), [t4] "+&r"(t4), [t5] "+&r"(t5)
            : CUZK_LIMBS_4(b, b), [b4] "m"(b[4]), [b5] "m"(b[5])
            : "cc");
    reduce_once(r, t0, t1, t2, t3, t4, t5);
  }

  static CUZK_INLINE void sub(uint64_t *r, const uint64_t *a, const uint64_t *b) {
    uint64_t t0 = a[0], t1 = a[1], t2 = a[2], t3 = a[3], t4 = a[4], t5 = a[5], mask;
    __asm__("subq %[b0], %[t0]\n\t"
            "sbbq %[b1], %[t1]\n\t"
            "sbbq %[b2], %[t2]\n\t"
            "sbbq %[b3], %[t3]\n\t"
            "sbbq %[b4], %[t4]\n\t"
            "sbbq %[b5], %[t5]\n\t"
            "sbbq %[m], %[m]\n\t"
            : [t0] "+&r"(t0), [t1] "+&r"(t1), [t2] "+&r"(t2), [t3] "+&r"(t3), [t4] "+&r"(t4), [t5] "+&r"(t5),
              [m] "=&r"(mask)
            : CUZK_LIMBS_4(b, b), [b4] "m"(b[4]), [b5] "m"(b[5])
            : "cc");
    const uint64_t p0 = P::modulus[0] & mask, p1 = P::modulus[1] & mask, p2 = P::modulus[2] & mask;
    const uint64_t p3 = P::modulus[3] & mask, p4 = P::modulus[4] & mask, p5 = P::modulus[5] & mask;
    __asm__("addq %[p0], %[t0]\n\t"
            "adcq %[p1], %[t1]\n\t"
            "adcq %[p2], %[t2]\n\t"
            "adcq %[p3], %[t3]\n\t"
            "adcq %[p4], %[t4]\n\t"
            "adcq %[p5], %[t5]\n\t"
            : [t0] "+&r"(t0), [t1] "+&r"(t1), [t2] "+&r"(t2), [t3] "+&r"(t3), [t4] "+&r"(t4), [t5] "+&r"(t5)
            : [p0] "rm"(p0), [p1] "rm"(p1), [p2] "rm"(p2), [p3] "rm"(p3), [p4] "rm"(p4), [p5] "rm"(p5)
            : "cc");
    r[0] = t0, r[1] = t1, r[2] = t2, r[3] = t3, r[4] = t4, r[5] = t5;
  }

  static CUZK_INLINE void mul(uint64_t *r, const uint64_t *a, const uint64_t *b) {
    uint64_t t0, t1, t2, t3, t4, t5, c, l, h, z;
    __asm__("movq %[b0], %%rdx\n\t"
            "xorl %k[z], %k[z]\n\t"
            "mulxq %[a0], %[t0], %[t1]\n\t"
            CUZK_ROW_FIRST(1, t1, t2) CUZK_ROW_FIRST(2, t2, t3) CUZK_ROW_FIRST(3, t3, t4) CUZK_ROW_FIRST(4, t4, t5)
            CUZK_ROW_FIRST(5, t5, c)
            "adoxq %[z], %[c]\n\t"
            CUZK_REDUCE_6 CUZK_STEP_6(1) CUZK_STEP_6(2) CUZK_STEP_6(3) CUZK_STEP_6(4) CUZK_STEP_6(5)
            : [t0] "=&r"(t0), [t1] "=&r"(t1), [t2] "=&r"(t2), [t3] "=&r"(t3), [t4] "=&r"(t4), [t5] "=&r"(t5),
              [c] "=&r"(c), [l] "=&r"(l), [h] "=&r"(h), [z] "=&r"(z)
            : CUZK_LIMBS_4(a, a), [a4] "m"(a[4]), [a5] "m"(a[5]), CUZK_LIMBS_4(b, b), [b4] "m"(b[4]), [b5] "m"(b[5]),
              CUZK_LIMBS_4(p, P::modulus), [p4] "m"(P::modulus[4]), [p5] "m"(P::modulus[5]), [n0] "i"(Montgomery<P>::n0)
            : "rdx", "cc");
    reduce_once(r, t0, t1, t2, t3, t4, t5);
  }
};

#undef CUZK_LIMBS_4
#undef CUZK_LIMBS_6
#undef CUZK_ROW_FIRST
#undef CUZK_ROW_NEXT
#undef CUZK_ROW_REDUCE
#undef CUZK_REDUCE_HEAD
#undef CUZK_REDUCE_4
#undef CUZK_STEP_4
#undef CUZK_REDUCE_6
#undef CUZK_STEP_6

template <class P>
using LimbsAdx = AdxKernel<P, P::limbs>;

}  // namespace CUZK_PATH
}  // namespace cuzk
