// The proof section of cuzk.h: arguments are checked here; the steps are put together from the path's functions.
#include <string.h>

#include "../capi/arguments.hpp"
#include "../capi/path_table.hpp"

using namespace cuzk;

namespace {

constexpr uint32_t all_steps = CUZK_PROOF_BLIND | CUZK_PROOF_BEGIN | CUZK_PROOF_FINISH;
constexpr size_t max_g1 = 2 * 48, max_g2 = 4 * 48;

// Offsets from the start of a proof, or of something else in bytes.
const unsigned char *at(const void *p, size_t offset) { return static_cast<const unsigned char *>(p) + offset; }
unsigned char *at(void *p, size_t offset) { return static_cast<unsigned char *>(p) + offset; }

// A few points of one curve, on the calling thread.
class Points {
 public:
  explicit Points(int curve) : g1(2 * coordinate_bytes[curve]), g2(2 * g1), curve_(curve), run_(&call_) {}
  Points(const Points &) = delete;
  Points &operator=(const Points &) = delete;

  const size_t g1, g2;  // bytes of a point

  // out = p + q; out may be one of them, since each is read first.
  int add(int group, void *out, const void *p, const void *q) {
    return paths().point_op(curve_, group, CUZK_POINT_ADD, out, p, q, 1, run_);
  }
  // out = first points[0] + second points[1]: so few that the sum needs no scratch.
  int combine(int group, void *out, const void *points, const void *first, const void *second) {
    unsigned char scalars[2 * sizeof one];
    memcpy(scalars, first, sizeof one);
    memcpy(scalars + sizeof one, second, sizeof one);
    return paths().msm(curve_, group, points, scalars, 2, out, nullptr, 0, run_);
  }
  int plain(void *out, const void *coordinates, uint64_t n) {
    return paths().field_op(curve_, CUZK_FQ, CUZK_FROM_MONT, out, coordinates, nullptr, n, run_);
  }
  int check(int group, const void *p, int *fault) {
    uint64_t index;
    return paths().points_check(curve_, group, p, 1, 1, &index, fault, run_);
  }
  int negate(void *out, const void *p) {
    return paths().point_op(curve_, CUZK_G1, CUZK_POINT_NEG, out, p, nullptr, 1, run_);
  }
  int product_is_one(const void *p, const void *q, uint64_t n, int *is_one) {
    return paths().pairing_check(curve_, p, q, n, is_one, run_);
  }

 private:
  int curve_;
  cuzk_call call_{1, 0, nullptr, nullptr, 0, 0};
  Run run_;
};

int blind(Points &points, const void *key, const void *blinding, void *proof) {
  const size_t g1 = points.g1;
  if (int status = points.combine(CUZK_G1, proof, key, one, blinding)) return status;
  return points.combine(CUZK_G2, at(proof, g1), at(key, 3 * g1), one, at(blinding, sizeof one));
}

int begin(Points &points, const void *key, const void *blinding, const void *sum_a, const void *sum_b1, void *proof) {
  const size_t g1 = points.g1;
  unsigned char ab[2 * max_g1];
  if (int status = points.add(CUZK_G1, proof, proof, sum_a)) return status;
  memcpy(ab, proof, g1);
  if (int status = points.add(CUZK_G1, ab + g1, at(key, 2 * g1), sum_b1)) return status;
  return points.combine(CUZK_G1, at(proof, g1 + points.g2), ab, at(blinding, sizeof one), blinding);
}

int finish(Points &points, const void *sum_b2, const void *sum_l, const void *sum_h, void *proof, void *coordinates) {
  unsigned char *const b = at(proof, points.g1), *const c = b + points.g2;
  if (int status = points.add(CUZK_G2, b, b, sum_b2)) return status;
  if (int status = points.add(CUZK_G1, c, c, sum_l)) return status;
  if (int status = points.add(CUZK_G1, c, c, sum_h)) return status;
  return points.plain(coordinates, proof, 8);
}

// With -A, as one product.
int equation(Points &points, const void *key, const void *x, const void *proof, int *holds) {
  const size_t g1 = points.g1, g2 = points.g2;
  unsigned char p[4 * max_g1], q[4 * max_g2];
  if (int status = points.negate(p, proof)) return status;
  memcpy(p + g1, key, g1);
  memcpy(p + 2 * g1, x, g1);
  memcpy(p + 3 * g1, at(proof, g1 + g2), g1);
  memcpy(q, at(proof, g1), g2);
  memcpy(q + g2, at(key, g1), 3 * g2);
  return points.product_is_one(p, q, 4, holds);
}

}  // namespace

extern "C" {

int cuzk_proof_assemble(int curve, uint32_t steps, const void *key, const void *blinding, const void *sum_a,
                        const void *sum_b1, const void *sum_b2, const void *sum_l, const void *sum_h, void *proof,
                        void *coordinates) {
  CUZK_REQUIRE(is_curve(curve) && steps && (steps & ~all_steps) == 0 && proof);
  CUZK_REQUIRE(!(steps & (CUZK_PROOF_BLIND | CUZK_PROOF_BEGIN)) || (key && blinding));
  CUZK_REQUIRE(!(steps & CUZK_PROOF_BEGIN) || (sum_a && sum_b1));
  CUZK_REQUIRE(!(steps & CUZK_PROOF_FINISH) || (sum_b2 && sum_l && sum_h && coordinates));
  Points points(curve);
  int status = CUZK_OK;
  if (steps & CUZK_PROOF_BLIND) status = blind(points, key, blinding, proof);
  if (!status && steps & CUZK_PROOF_BEGIN) status = begin(points, key, blinding, sum_a, sum_b1, proof);
  if (!status && steps & CUZK_PROOF_FINISH) status = finish(points, sum_b2, sum_l, sum_h, proof, coordinates);
  return status;
}

int cuzk_proof_input(int curve, const void *ic, const void *signals, uint64_t n, void *x, void *scratch,
                     uint64_t scratch_bytes, cuzk_call *call) {
  CUZK_REQUIRE(is_curve(curve) && ic && x && n <= max_elements);
  Points points(curve);
  unsigned char sum[max_g1];
  const int status = cuzk_msm(curve, CUZK_G1, at(ic, points.g1), signals, n, sum, scratch, scratch_bytes, call);
  return status ? status : points.add(CUZK_G1, x, ic, sum);
}

int cuzk_proof_check(int curve, const void *key, const void *x, const void *proof, int *item, int *fault) {
  CUZK_REQUIRE(is_curve(curve) && key && x && proof && item && fault);
  Points points(curve);
  const size_t offsets[3] = {0, points.g1, points.g1 + points.g2};
  for (int i = CUZK_PROOF_A; i <= CUZK_PROOF_C; i++) {
    *item = i;
    if (int status = points.check(i == CUZK_PROOF_B ? CUZK_G2 : CUZK_G1, at(proof, offsets[i]), fault)) return status;
  }
  *item = CUZK_PROOF_EQUATION;
  int holds = 0;
  if (int status = equation(points, key, x, proof, &holds)) return status;
  return holds ? CUZK_OK : CUZK_E_DATA;
}

}  // extern "C"
