/* C interface of cuzk's native CPU library.
 *
 * Conventions, for every function:
 *  - Integers are arrays of 64-bit limbs, least significant first, in the machine's (little-endian) byte order.
 *    Fr is 4 limbs on both curves; Fq is 4 limbs on BN254 and 6 on BLS12-381; Fq2 is c0 then c1.
 *  - "Montgomery" means x * 2^(64*limbs) mod p, reduced to [0, p): the form of snarkjs's keys. "Plain" means x itself.
 *  - An affine point is x then y in Montgomery form; the point at infinity is all zero. G1 is 2*Fq, G2 is 2*Fq2.
 *  - No pointer needs an alignment above 4 bytes for data that comes from mapped files (points, coefficients, witness);
 *    scratch and vectors that the caller allocates are 64-byte aligned.
 *  - Every function returns a cuzk_status. Nothing is allocated behind the caller's back beyond a few KiB a thread:
 *    what a function needs it is given (see the *_scratch_bytes functions). No function keeps a pointer after it returns.
 *  - All functions may be called from several threads at once; calls share one pool of worker threads.
 */
#ifndef CUZK_H
#define CUZK_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

typedef enum { CUZK_BN254 = 0, CUZK_BLS12_381 = 1 } cuzk_curve;
typedef enum { CUZK_FR = 0, CUZK_FQ = 1, CUZK_FQ2 = 2 } cuzk_field;
typedef enum { CUZK_G1 = 1, CUZK_G2 = 2 } cuzk_group;

typedef enum {
  CUZK_OK = 0,
  CUZK_E_ARGUMENT = 1,  /* curve, group, size or flag out of range */
  CUZK_E_SCRATCH = 2,   /* scratch smaller than the *_scratch_bytes function says */
  CUZK_E_CANCELLED = 3, /* *call->cancel became non-zero */
  CUZK_E_DATA = 4       /* input violates what it must hold; the function's out parameters say where */
} cuzk_status;

/* What happened inside a call; times are CLOCK_MONOTONIC nanoseconds. */
typedef enum {
  CUZK_SPAN_MSM_DIGITS = 1,     /* digits extracted and sorted into buckets */
  CUZK_SPAN_MSM_ACCUMULATE = 2, /* points added into buckets */
  CUZK_SPAN_MSM_REDUCE = 3,     /* buckets and windows summed */
  CUZK_SPAN_NTT = 4,
  CUZK_SPAN_COSET = 5,
  CUZK_SPAN_SPMV = 6,
  CUZK_SPAN_POINTWISE = 7,
  CUZK_SPAN_CHECK = 8,
  CUZK_SPAN_PAIRING = 9
} cuzk_span_kind;

typedef struct {
  int64_t start_ns, end_ns;
  uint32_t kind;   /* cuzk_span_kind */
  uint32_t detail; /* number of the window or pass */
} cuzk_span;

/* How one call runs; a null pointer means all defaults. */
typedef struct {
  uint32_t threads;               /* 0: all processors of this process's affinity mask */
  uint32_t flags;                 /* 0 */
  const volatile int32_t *cancel; /* may be null; looked at at least every 50 ms of work */
  cuzk_span *spans;               /* may be null */
  uint32_t span_capacity;
  uint32_t span_count; /* out: spans written; further ones are dropped */
} cuzk_call;

/* ---- library ---- */
const char *cuzk_source_hash(void); /* 64 hex digits over kernels/, as tools/source_hash.py computes them */
const char *cuzk_isa(void);         /* the code path in use: "portable", "bmi2+adx", "bmi2+adx+avx512ifma". The environment
                                     * variable CUZK_CPU_FEATURES limits it: empty, no vector instructions; "portable",
                                     * plain C++; "avx512ifma", all that there is today. */
const char *cuzk_isa_available(void); /* comma-separated, best last */
uint32_t cuzk_threads(void);        /* what 0 threads means */
/* Sleeps at least so long, then calls acquire, and release with what that returned. 1 when acquire had to wait, which is
 * when it gave the processor up of itself, else 0; how long it took says nothing of that on a cold or a busy processor.
 * With the functions by which a thread enters and leaves an interpreter: whether another held its lock. -1 without
 * functions. */
int cuzk_has_to_wait(uint32_t microseconds, int (*acquire)(void), void (*release)(int));
/* For a thread that has to answer a device at once: it, and those that it starts from now on, ask the system for time
 * slices of slice_ns, so that they run soon after they wake, and the pool's threads run at the absolute niceness
 * `niceness`. Else, where all processors compute, the device waits for the end of somebody's slice, milliseconds. Returns 0,
 * or an errno where the system refuses (no Linux, another scheduling class, a filter of system calls); slices need Linux
 * 6.12. */
int cuzk_run_before_pool(int niceness, uint64_t slice_ns);
/* n bytes that do not overlap, and n zero bytes, by several threads. */
int cuzk_bytes_copy(void *to, const void *from, uint64_t n, cuzk_call *call);
int cuzk_bytes_zero(void *data, uint64_t n, cuzk_call *call);

/* ---- fields: element-wise over n elements; for tests, conversion and small work ---- */
typedef enum {
  CUZK_ADD = 0, CUZK_SUB = 1, CUZK_MUL = 2, CUZK_SQR = 3, CUZK_NEG = 4,
  CUZK_INV = 5,       /* the inverse of 0 is 0 */
  CUZK_TO_MONT = 6,   /* input must be < p */
  CUZK_FROM_MONT = 7
} cuzk_op;
/* out[i] = a[i] op b[i]; b is ignored by unary operations and may be null; out may be a or b. */
int cuzk_field_op(int curve, int field, int op, void *out, const void *a, const void *b, uint64_t n, cuzk_call *call);
/* CUZK_E_DATA and *first_bad when one of n elements is not below the modulus. */
int cuzk_field_check(int curve, int field, const void *a, uint64_t n, uint64_t *first_bad, cuzk_call *call);
/* counts[0] zeros, counts[1] ones, counts[2] others, of n plain Fr elements. */
int cuzk_fr_classify(int curve, const void *a, uint64_t n, uint64_t counts[3], cuzk_call *call);

/* ---- curves ---- */
typedef enum { CUZK_POINT_ADD = 0, CUZK_POINT_DOUBLE = 1, CUZK_POINT_NEG = 2, CUZK_POINT_MUL = 3 } cuzk_point_op_kind;
/* Affine in, affine out, element-wise. For CUZK_POINT_MUL b holds n plain Fr scalars, else n points or null. */
int cuzk_point_op(int curve, int group, int op, void *out, const void *a, const void *b, uint64_t n, cuzk_call *call);
/* out[k] = the sum of the next counts[k] >= 1 points times their scalars (plain Fr; 1 costs an addition alone). scratch:
 * two points. */
int cuzk_point_sums(int curve, int group, const void *points, const void *scalars, const uint32_t *counts, uint64_t sums,
                    void *out, void *scratch, cuzk_call *call);
typedef enum { CUZK_POINT_OK = 0, CUZK_POINT_COORDINATE = 1, CUZK_POINT_OFF_CURVE = 2, CUZK_POINT_SUBGROUP = 3,
               CUZK_POINT_FLAGS = 4, CUZK_POINT_INFINITY = 5 /* of cuzk_points_decode only */ } cuzk_point_fault;
/* Coordinates below q and on the curve (infinity passes); with check_subgroup non-zero also of order r.
 * CUZK_E_DATA with the lowest bad index and its cuzk_point_fault. */
int cuzk_points_check(int curve, int group, const void *points, uint64_t n, int check_subgroup, uint64_t *first_bad,
                      int *fault, cuzk_call *call);
/* How many of n points are not infinity (all bytes zero). */
int cuzk_points_present(int curve, int group, const void *points, uint64_t n, uint64_t *present, cuzk_call *call);

/* BLS12-381 points in the uncompressed zcash encoding (big-endian plain coordinates, c1 before c0, flags in the top
 * three bits of the first byte; group: 96 or 192 bytes each), at any alignment, to affine points in Montgomery form.
 * Every point must have no flag, coordinates below q, lie on the curve and, with check_subgroup non-zero, have order r;
 * infinity is refused. `present`: n_out bits, least significant first, n of them set: the places of the n points in
 * `out`, infinity stands in the others; null: n_out is n, point i at i. `out` (n_out points) may be null: only checked.
 * CUZK_E_DATA with the lowest bad point's number and its cuzk_point_fault; CUZK_E_ARGUMENT where the bits do not count
 * n. */
int cuzk_points_decode(int curve, int group, const void *encoded, uint64_t n, const void *present, uint64_t n_out,
                       void *out, int check_subgroup, uint64_t *first_bad, int *fault, cuzk_call *call);

/* *all != 0 when n affine points (on the curve, Montgomery form; infinity passes) all have order r. By sums of random
 * subsets: a point of another order is missed with a probability of 2^-64 at most, for a seed that who made the points
 * cannot know. */
uint64_t cuzk_subgroup_check_scratch_bytes(int curve, int group, uint64_t n, uint32_t threads);
int cuzk_subgroup_check(int curve, int group, const void *points, uint64_t n, const uint8_t seed[32], int *all,
                        void *scratch, uint64_t scratch_bytes, cuzk_call *call);

/* ---- NTT over Fr, Montgomery form, in place ---- */
/* omega_k, the root of unity of order 2^k, is snarkjs's: nqr^((r-1)/2^s) squared s-k times, nqr the smallest non-residue
 * (counted from 2), s the two-adicity. */
typedef enum {
  CUZK_NTT_INVERSE = 1,      /* also scales by 1/n */
  CUZK_NTT_IN_REVERSED = 2,  /* input in bit-reversed order */
  CUZK_NTT_OUT_REVERSED = 4  /* output in bit-reversed order; with neither flag natural order on both sides */
} cuzk_ntt_flags;
uint64_t cuzk_ntt_table_bytes(int curve, uint32_t log_n);
/* Fills the table of twiddles that the transforms of size 2^log_n need, forward, inverse and coset. */
int cuzk_ntt_table(int curve, uint32_t log_n, void *table, cuzk_call *call);
int cuzk_ntt(int curve, void *data, uint32_t log_n, int flags, const void *table, cuzk_call *call);
/* data[i] *= g^i (or g^-i), g = omega_{log_n+1}, or the field's shift (nqr^2... as snarkjs) where log_n equals s;
 * reversed != 0: data is in bit-reversed order. */
int cuzk_coset_scale(int curve, void *data, uint32_t log_n, int inverse, int reversed, const void *table, cuzk_call *call);
/* Values on the domain in, values on the odd coset out, natural order on both sides: inverse NTT, coset scale, NTT,
 * without bit reversal. */
int cuzk_coset_extend(int curve, void *data, uint32_t log_n, const void *table, cuzk_call *call);

/* ---- Groth16 vectors ---- */
/* Section 4 of a zkey: n entries of 44 bytes {u32 matrix, u32 constraint, u32 signal, coefficient * R^2 mod r}. */
/* Checks matrix < 2, constraint < domain, signal < n_vars, coefficient < r; *sorted != 0 when constraints never
 * decrease within the list; nonzeros[0..1] counts entries of A and B. CUZK_E_DATA with *first_bad. */
int cuzk_coefficients_check(int curve, const void *entries, uint64_t n, uint64_t n_vars, uint64_t domain, int *sorted,
                            uint64_t nonzeros[2], uint64_t *first_bad, cuzk_call *call);
/* Writes order[0..n), entry numbers ordered by constraint, for lists that are not sorted. scratch: (domain + 1) * 8 bytes. */
int cuzk_coefficients_order(const void *entries, uint64_t n, uint64_t domain, uint32_t *order, void *scratch, cuzk_call *call);
/* a = A*w, b = B*w, c = a o b, each `domain` elements in Montgomery form; w: n_vars plain elements; order: null when sorted.
 * a, b, c are written whole (zero where no entry stands); c may be null. */
int cuzk_evaluate(int curve, const void *entries, uint64_t n, const uint32_t *order, const void *w, uint64_t domain, void *a,
                  void *b, void *c, cuzk_call *call);
/* a = a*b - c, leaving Montgomery form: the scalars of the H query in snarkjs's basis. */
int cuzk_h_join(int curve, void *a, const void *b, const void *c, uint64_t n, cuzk_call *call);

/* A matrix of Fr in compressed rows, at any alignment, read where it lies. */
typedef struct {
  const void *rows;    /* rows + 1 u32: terms [rows[i], rows[i+1]) belong to row i */
  const void *columns; /* u32 a term */
  const void *values;  /* Fr a term, Montgomery form */
  uint64_t terms;      /* below 2^32 */
} cuzk_csr;
typedef enum { CUZK_CSR_OK = 0, CUZK_CSR_ROWS = 1, CUZK_CSR_COLUMN = 2, CUZK_CSR_VALUE = 3 } cuzk_csr_fault;
/* Row pointers start at 0, never fall and end at `terms`; columns below n_vars; values below r. CUZK_E_DATA with the
 * cuzk_csr_fault and the number of the row pointer or term. `present` (may be null): (n_vars + 7) / 8 bytes, bit j set
 * where column j has a coefficient: in one row at least, one that is not zero, repeated columns of a row being added
 * up. */
int cuzk_csr_check(int curve, const cuzk_csr *matrix, uint64_t rows, uint64_t n_vars, void *present, int *fault,
                   uint64_t *first_bad, cuzk_call *call);
/* a = A*w, b = B*w, c = C*w in Montgomery form for the three checked matrices; w: plain. Row i stands at i * stride mod
 * domain (stride odd, domain a power of two). After the `rows` rows come `inputs` rows that say w[k] * 0 = 0, then
 * zeros. CUZK_E_DATA and the first row with a*b != c where there is one; the vectors are written whole all the same. */
int cuzk_csr_evaluate(int curve, const cuzk_csr matrices[3], uint64_t rows, uint64_t inputs, const void *w,
                      uint64_t domain, uint64_t stride, void *a, void *b, void *c, uint64_t *first_bad,
                      cuzk_call *call);
/* a, b, c on the odd coset (cuzk_coset_extend) in; out in a, plain: the coefficients of (a b - c) / (X^n - 1), lowest
 * first. */
int cuzk_quotient(int curve, void *a, const void *b, const void *c, uint32_t log_n, const void *table, cuzk_call *call);

/* ---- MSM ---- */
/* out = sum scalars[i] * points[i], affine; scalars plain and below r (CUZK_E_DATA when one is not, where n > 4);
 * n may be 0. */
uint64_t cuzk_msm_scratch_bytes(int curve, int group, uint64_t n, uint32_t threads);
int cuzk_msm(int curve, int group, const void *points, const void *scalars, uint64_t n, void *out, void *scratch,
             uint64_t scratch_bytes, cuzk_call *call);
/* The same by double-and-add, one thread: what the fast paths are tested against. */
int cuzk_msm_reference(int curve, int group, const void *points, const void *scalars, uint64_t n, void *out);

/* ---- pairing ---- */
/* *is_one != 0 when the product of e(p[i], q[i]) over n pairs is 1. Points must be on their curves and of order r. */
int cuzk_pairing_check(int curve, const void *p, const void *q, uint64_t n, int *is_one, cuzk_call *call);
/* e(p, q) after the final exponentiation, 12 Fq coefficients, plain, of the tower Fq12 = Fq6[w], Fq6 = Fq2[v]:
 * c0.c0.c0, c0.c0.c1, c0.c1.c0, ... c1.c2.c1. */
int cuzk_pairing(int curve, const void *p, const void *q, void *out, cuzk_call *call);

/* ---- a Groth16 proof: one thread, at most a few milliseconds ---- */
typedef enum { CUZK_PROOF_BLIND = 1, CUZK_PROOF_BEGIN = 2, CUZK_PROOF_FINISH = 4 } cuzk_proof_step;
/* The points A (G1), B (G2), C (G1) of a proof, affine, one after the other, are put together in place. The three steps
 * are done once each and in this order, in one call or in several as the sums come; what no step of a call needs may be
 * null.
 *   BLIND   A = alpha + r delta, B = beta + s delta
 *   BEGIN   A += sum_a, C = s A + r (beta + sum_b1): the whole of s A + r B' - r s delta, B' being B in G1
 *   FINISH  B += sum_b2, C += sum_l + sum_h; coordinates: the eight of A, B and C, plain
 * key: alpha, delta, beta in G1, then beta, delta in G2. blinding: r, then s, plain. */
int cuzk_proof_assemble(int curve, uint32_t steps, const void *key, const void *blinding, const void *sum_a,
                        const void *sum_b1, const void *sum_b2, const void *sum_l, const void *sum_h, void *proof,
                        void *coordinates);
/* x = ic[0] + the sum of signals[i] * ic[i + 1] for n signals, plain and below r. scratch, threads (these alone may be
 * several) and CUZK_E_DATA as for the cuzk_msm of n points of G1. */
int cuzk_proof_input(int curve, const void *ic, const void *signals, uint64_t n, void *x, void *scratch,
                     uint64_t scratch_bytes, cuzk_call *call);
typedef enum { CUZK_PROOF_A = 0, CUZK_PROOF_B = 1, CUZK_PROOF_C = 2, CUZK_PROOF_EQUATION = 3 } cuzk_proof_item;
/* Whether a proof's points are good and e(A, B) = e(alpha, beta) e(x, gamma) e(C, delta). key: alpha in G1, then beta,
 * gamma, delta in G2; these and x must be on their curves and of order r. CUZK_E_DATA with the first bad point and its
 * cuzk_point_fault, or with CUZK_PROOF_EQUATION and CUZK_POINT_OK. */
int cuzk_proof_check(int curve, const void *key, const void *x, const void *proof, int *item, int *fault);

/* ---- fixed base: many multiples of one point ---- */
/* window: bits of a digit, 2..16; a multiple costs one addition for each of about 255 / window digits, the table holds
 * 2^(window - 1) points for each. */
uint64_t cuzk_fixed_base_table_bytes(int curve, int group, uint32_t window);
uint64_t cuzk_fixed_base_scratch_bytes(int curve, int group, uint32_t window, uint32_t threads);
int cuzk_fixed_base_table(int curve, int group, const void *point, uint32_t window, void *table, void *scratch,
                          uint64_t scratch_bytes, cuzk_call *call);
/* out[i] = scalars[i] * point, affine; scalars plain. CUZK_E_DATA and the lowest *first_bad when one is not below r. */
int cuzk_fixed_base_multiply(int curve, int group, const void *table, uint32_t window, const void *scalars, uint64_t n,
                             void *out, void *scratch, uint64_t scratch_bytes, uint64_t *first_bad, cuzk_call *call);

/* ---- key generation: Fr, Montgomery form unless said otherwise ---- */
/* out[i] = first * x^i. */
int cuzk_fr_powers(int curve, const void *x, const void *first, uint64_t n, void *out, cuzk_call *call);
/* out[0] = x^2 + k, out[i] = out[i-1]^2 + k; one thread. */
int cuzk_fr_chain(int curve, const void *x, const void *k, uint64_t n, void *out, cuzk_call *call);
/* out[i] = k * w^j / (x - w^j), j = begin + i: for w of order m and k = (x^m - 1) / m the values at x of the Lagrange basis
 * of the domain of w. CUZK_E_DATA when x is one of these w^j. */
int cuzk_fr_lagrange(int curve, const void *w, const void *x, const void *k, uint64_t begin, uint64_t n, void *out,
                     cuzk_call *call);
/* out[i] = k[0] * a[i] + k[1] * b[i] + k[2] * c[i]: plain where a, b, c are plain; out may be one of them. */
int cuzk_fr_combine(int curve, void *out, const void *a, const void *b, const void *c, const void *k, uint64_t n,
                    cuzk_call *call);
/* Section 2 of an .r1cs file, of `constraints` rows over `wires` wires. */
/* Structure, wires and coefficients; terms[0..2] counts the terms of A, B, C. CUZK_E_DATA with the number of the first bad
 * row, or `constraints` when bytes are left over. */
int cuzk_r1cs_check(int curve, const void *section, uint64_t bytes, uint64_t constraints, uint64_t wires, uint64_t terms[3],
                    uint64_t *first_bad, cuzk_call *call);
/* a[s] = sum over all rows i of A[i][s] * basis[i], plain, and so b and c; `wires` elements each, written whole. */
int cuzk_r1cs_columns(int curve, const void *section, uint64_t bytes, uint64_t constraints, uint64_t wires, const void *basis,
                      void *a, void *b, void *c, cuzk_call *call);
/* Entries of section 4 of a zkey for as many whole rows as `capacity` entries hold, from *row, which starts at *offset of
 * the section; both go on (from 0, 0). *count entries were written; CUZK_E_SCRATCH when not even one row has room. */
int cuzk_r1cs_coefficients(int curve, const void *section, uint64_t bytes, uint64_t constraints, uint64_t *offset,
                           uint64_t *row, void *entries, uint64_t capacity, uint64_t *count, cuzk_call *call);

/* ---- launches on a GPU, written down once and replayed ---- */
typedef enum {
  CUZK_LAUNCH = 0,
  CUZK_RECORD = 1,
  CUZK_WAIT = 2,
  CUZK_ZERO = 3,
  CUZK_COPY = 4,
  CUZK_FETCH = 5
} cuzk_operation_kind;
#define CUZK_CONSTANT 0xffffffffu
/* `value` where base is CUZK_CONSTANT, else that much more than the base of this number: an address (8 bytes) or a number
 * (4 bytes). */
typedef struct {
  uint64_t value;
  uint32_t base, size;
} cuzk_argument;
/* On a stream: a kernel (object: its function) with arguments; an event (object) recorded or waited for; `bytes` zeroed
 * (1 argument), copied on the device (2: target, source) or fetched from it (the target is page-locked host memory). */
typedef struct {
  uint32_t kind, stream, object, first_argument, argument_count, shared_bytes, grid[3], block[3];
  uint64_t bytes;
} cuzk_operation;
typedef struct {
  const cuzk_operation *operations;
  const cuzk_argument *arguments;
  const uint64_t *functions; /* CUfunction */
  uint64_t operation_count, argument_count, function_count;
} cuzk_script;
/* What a script is replayed with: handles and addresses of the driver. Stream 0 is the default stream. */
typedef struct {
  uint64_t context; /* made the calling thread's current one */
  const uint64_t *streams, *events, *bases;
  uint32_t stream_count, event_count, base_count;
} cuzk_replay_values;
/* cuCtxSetCurrent, cuLaunchKernel, cuEventRecord, cuStreamWaitEvent, cuMemsetD8Async, cuMemcpyDtoDAsync_v2,
 * cuMemcpyDtoHAsync_v2, cuEventElapsedTime. */
typedef struct {
  const void *set_context, *launch_kernel, *record_event, *wait_event, *fill, *copy, *fetch, *elapsed_time;
} cuzk_driver;
/* Enqueues a script's operations in their order; everything is checked before the first one. CUZK_E_DATA where the
 * driver refuses: its CUresult in *code, and the number of the operation (their count: the context). What was enqueued
 * before stays so. */
int cuzk_replay(const cuzk_driver *driver, const cuzk_script *script, const cuzk_replay_values *values, int *code,
                uint64_t *failed);
/* When events happened: ns[k], nanoseconds after `base` that event k took, one event after the other. They come in
 * groups of sizes[g] >= 1 events, whose last one is over no sooner than the others and is asked first: where one of a
 * group is not over yet, ns is CUZK_NOT_OVER for all of it. CUZK_E_DATA where the driver refuses: its CUresult in *code. */
#define CUZK_NOT_OVER INT64_MIN
int cuzk_event_times(const cuzk_driver *driver, uint64_t context, uint64_t base, const uint64_t *events,
                     const uint32_t *sizes, uint64_t groups, int64_t *ns, int *code);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
