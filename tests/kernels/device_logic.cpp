// The logic of the device's kernels on the host: the same headers, built with sanitizers by test_device_logic.py.
// Prints what failed and returns 1.
#define CUZK_MUL_INLINE  // calls compile several times as fast
#include <stdio.h>
#include <string.h>

#include <random>
#include <set>
#include <vector>

#include "ec/curves.hpp"
#include "msm/digits_cuda.hpp"
#include "msm/tasks_cuda.hpp"
#include "msm/tree_round_cuda.hpp"
#include "ntt/passes_cuda.hpp"

using namespace cuzk::CUZK_PATH;

namespace {

int failures = 0;
std::mt19937_64 source(1);

void check(bool right, const char *what, int a = 0, int b = 0) {
  if (right) return;
  if (failures++ < 20) printf("wrong: %s (%d, %d)\n", what, a, b);
}

template <class F>
F random_element() {
  F r;
  do {
    for (int i = 0; i < F::N; i++) {
      const uint64_t kind = source() % 8;
      r.v[i] = kind == 0 ? 0 : kind == 1 ? 0xffffffffu : (uint32_t)source();
    }
    r.v[F::N - 1] &= 0x7fffffffu;
  } while (!r.is_reduced());
  return r;
}

// Product and reduction one after the other, a limb at a time.
template <class F>
F slow_product(const F &a, const F &b) {
  constexpr int N = F::N;
  uint32_t t[2 * N + 1] = {};
  for (int i = 0; i < N; i++) {
    uint64_t carry = 0;
    for (int j = 0; j < N; j++) {
      const uint64_t x = (uint64_t)a.v[j] * b.v[i] + t[i + j] + carry;
      t[i + j] = (uint32_t)x;
      carry = x >> 32;
    }
    t[i + N] = (uint32_t)carry;
  }
  for (int i = 0; i < N; i++) {
    const uint32_t k = t[i] * F::Arithmetic::n0;
    uint64_t carry = 0;
    for (int j = 0; j < N; j++) {
      const uint64_t x = (uint64_t)F::Arithmetic::p(j) * k + t[i + j] + carry;
      t[i + j] = (uint32_t)x;
      carry = x >> 32;
    }
    for (int j = i + N; carry && j <= 2 * N; j++) {
      const uint64_t x = (uint64_t)t[j] + carry;
      t[j] = (uint32_t)x;
      carry = x >> 32;
    }
  }
  F r;
  F::Arithmetic::reduce_once(r.v, t + N);
  return r;
}

template <class F>
void fields(const char *name) {
  for (int i = 0; i < 3000; i++) {
    const F a = random_element<F>(), b = random_element<F>(), c = random_element<F>(), d = random_element<F>();
    check(a * b == slow_product(a, b), name, i, 0);
    check(a.sqr() == slow_product(a, a), name, i, 1);
    F quick;
    ColumnsCuda<typename F::P>::mul(quick.v, a.v, b.v);
    check(quick == a * b, name, i, 6);
    if constexpr (F::P::modulus[F::P::limbs - 1] >> 62 == 0) {
      ColumnsCuda<typename F::P>::dot(quick.v, a.v, b.v, c.v, d.v);
      check(quick == a * b + c * d, name, i, 7);
    }
    check((a + b) - b == a && (a + b).is_reduced() && (a - b).is_reduced() && (a * b).is_reduced(), name, i, 2);
    check(a.to_mont().from_mont() == a && (-a + a).is_zero(), name, i, 3);
    if constexpr (F::P::modulus[F::P::limbs - 1] >> 62 == 0)
      check(product_difference(a, b, c, d) == a * b - c * d, name, i, 4);
    // The values of few limbs have short rounds of the binary GCD.
    F c2 = a;
    for (int k = 1 + i % F::N; k < F::N; k++) c2.v[k] = 0;
    for (const F &x : {a, c2, -c2}) check(x.is_zero() ? x.inverse().is_zero() : x.inverse() * x == F::one(), name, i, 5);
  }
}

// Of any scalar: the digits' sum against `number`, an element of Fr.
template <int N, class Fr>
void digits_of(const Signed<N> &scalar, const Fr &number, Windows windows) {
  uint32_t half[N];
  SignedScalar<N>::raise(half, windows);
  auto rest = SignedScalar<N>::from(scalar, half);
  Fr sum = Fr::zero(), weight = Fr::one();
  for (uint32_t w = 0; w < windows.count; w++) {
    const uint32_t d = rest.digit(w, windows), size = d & ~digit_negative;
    rest.shift(windows.bits);
    check(size <= 1u << (windows.bits - 1) && (size || !d), "size of a digit", (int)windows.bits, (int)w);
    const Fr term = Fr::from_u64(size) * weight;
    sum = d & digit_negative ? sum - term : sum + term;
    for (uint32_t k = 0; k < windows.bits; k++) weight = weight.dbl();
  }
  check(sum == number, "digits", (int)windows.bits, N);
}

template <int N, class Fr>
Fr value(const Signed<N> &scalar) {
  Fr r = Fr::zero();
  for (int i = 0; i < N && i < Fr::N; i++) r.v[i] = scalar.v[i];
  r = r.to_mont();
  return scalar.negative ? -r : r;
}

template <class Fr>
Fr lambda() {  // the cube root of unity for which the vectors of the lattice are right: a1 / b1
  using Lattice = typename LatticeOf<Fr>::Lattice;
  Signed<4> a{}, b{};
  for (int i = 0; i < 4; i++) a.v[i] = Lattice::a1[i], b.v[i] = Lattice::b1[i];
  return value<4, Fr>(a) * value<4, Fr>(b).inverse();
}

template <class Fr>
void digits(uint32_t order_bits) {
  const Fr root = lambda<Fr>();
  check(root != Fr::one() && root.sqr() * root == Fr::one(), "lambda");
  for (uint32_t c = 2; c <= 22; c++) {
    for (int i = 0; i < 60; i++) {
      Fr s = random_element<Fr>();  // plain
      if (i < 3) s = Fr::zero();
      if (i == 1) s.v[0] = 1;
      if (i == 2) s = -Fr::one().from_mont();
      if (i == 3) s = root.from_mont();
      if (i == 4) s = (-root).from_mont();
      if (i >= 5 && i < 40) s = (Fr::from_u64(source()) * root + Fr::from_u64(source() >> (i % 64))).from_mont();
      if (i >= 20 && i < 30) s = -s;
      digits_of(nearer(s), s.to_mont(), {c, (order_bits + c - 1) / c});
      const auto halves = Halves<Fr>::of(s);
      const Fr k1 = value<4, Fr>(halves.k1), k2 = value<4, Fr>(halves.k2);
      check(k1 + k2 * root == s.to_mont(), "halves", (int)c, i);
      check(halves.k1.v[3] >> 31 == 0 && halves.k2.v[3] >> 31 == 0, "bits of halves", (int)c, i);
      for (const auto &half : {halves.k1, halves.k2}) digits_of(half, value<4, Fr>(half), {c, (half_bits + c - 1) / c});
    }
  }
}

void tasks() {
  for (uint32_t longest : {16u, 64u, 200u}) {
    for (uint32_t length = longest + 1; length < 100000; length += 1 + length / 7) {
      const Cut cut = Cut::of(length, longest);
      uint32_t total = 0;
      for (uint32_t i = 0; i < cut.pieces; i++) {
        check(cut.offset(i) == total && cut.length(i) > 0 && cut.length(i) <= longest, "cut", (int)length, (int)i);
        total += cut.length(i);
      }
      check(total == length && cut.pieces > 1, "cut", (int)length, (int)cut.pieces);
      // The levels on integers; the bucket is slot 0, the pieces' slots start at 5.
      std::vector<uint64_t> slots(cut.pieces + 5, 0);
      for (uint32_t i = 0; i < cut.pieces; i++) slots[5 + i] = i + 1;
      for (uint32_t level = 0; level < most_levels; level++) {
        const uint32_t number = Group::number(cut.pieces, level);
        for (uint32_t g = 0; g < number; g++) {
          const Group group = Group::of(cut.pieces, level, g, 5, 0);
          uint64_t sum = 0;
          for (uint32_t i = 0; i < group.count; i++) sum += slots.at(group.first + (uint64_t)i * group.step);
          slots.at(group.out) = sum;
        }
        if (number == 1) break;
      }
      check(slots[0] == (uint64_t)cut.pieces * (cut.pieces + 1) / 2, "groups", (int)length, (int)longest);
    }
  }
}

// Points to add, with all that is exceptional among them: infinity first, then pairs of opposite ones.
template <class F>
std::vector<Affine<F>> some_points(const F &b) {
  uint64_t e[F::P::limbs];  // (p + 1) / 4: square roots, since p = 3 mod 4
  for (int i = 0; i < F::P::limbs; i++) {
    const uint64_t next = i + 1 < F::P::limbs ? F::P::modulus[i + 1] : 0;
    e[i] = F::P::modulus[i] >> 2 | next << 62;
  }
  e[0] += 1;
  std::vector<Affine<F>> points{Affine<F>::infinity()};
  for (uint64_t x = 0; points.size() < 61; x++) {
    const F fx = F::from_u64(x), square = fx.sqr() * fx + b, y = square.pow(e, F::P::limbs);
    if (y.sqr() != square) continue;
    points.push_back({fx, y});
    points.push_back({fx, -y});
  }
  return points;
}

// All rounds over random lists, thread by thread as the kernels run them, against sums one by one.
template <class F>
void trees(const F &b, uint32_t longest, uint32_t count, uint32_t few, uint32_t each, uint32_t least) {
  constexpr uint32_t width = warp_size;
  const std::vector<Affine<F>> points = some_points<F>(b);
  const uint32_t total = (uint32_t)points.size();
  std::vector<Affine<F>> numbered = points;  // and their images
  std::vector<F> images;
  for (const auto &p : points) {
    images.push_back(p.x * cube_root<F>(1));
    numbered.push_back({images.back(), p.y});
    check(numbered.back().on_curve(b), "image", (int)images.size());
  }
  std::vector<uint32_t> lengths(count), entries, histogram(longest + 1, 0);
  for (uint32_t &length : lengths) {
    length = source() % 4 ? 1 + source() % longest : 1 + source() % 3 % longest;
    histogram[length]++;
  }
  std::vector<uint32_t> tables(2 * (longest + 1));
  const Classes classes{tables.data(), tables.data() + longest + 1};
  std::vector<uint32_t> places = histogram;
  const uint32_t made = classes.order(places.data(), longest, width), groups = made / width;
  std::vector<Task> tasks(made, Task{0, 0, 0});
  for (uint32_t t = 0; t < count; t++) {
    tasks.at(places[lengths[t]]++) = Task{(uint32_t)entries.size(), lengths[t], t};
    for (uint32_t i = 0; i < lengths[t]; i++)
      entries.push_back((uint32_t)(few ? source() % few + (source() % 2) * total : source() % numbered.size()) | (source() % 2 ? 1u << 31 : 0));
  }
  // What shape.py allots.
  const size_t rows_most = ((entries.size() + count) / 2) / width + (size_t)(longest + 1) * (longest + 1) / 4;
  std::vector<Quad> rows(rows_most * Rows<F>::point_row), products((rows_most + 1) / 2 * Rows<F>::element_row);
  std::vector<Quad> stage(Stage<F>::quads * Stage<F>::columns);
  uint32_t rounds = 1;
  while (Halving::left(longest, rounds) > 1) rounds++;
  if (longest > 4) rounds--;  // leaves two
  for (uint32_t number = 0; number < rounds; number++) {
    const uint32_t warps = tree_warps(groups, each, least);
    check(warps <= groups && (uint64_t)warps * each >= groups, "warps", (int)groups, (int)warps);
    std::vector<Quad> totals(warps * Rows<F>::element_row), inverses(totals.size());
    const auto pass = [&](auto round) {
      for (uint32_t warp = 0; warp < warps; warp++)
        for (uint32_t lane = 0; lane < warp_size; lane++)
          Rows<F>::store(&totals.at(warp * Rows<F>::element_row + lane), round.multiply_up(warp, warps, lane));
      const uint32_t step = (warps + 2) / 3;
      for (uint32_t lane = 0; lane < warp_size; lane++)
        for (uint32_t first = 0; first < step; first++)
          invert_totals<F>(&totals[lane], &inverses[lane], first, step, warps);
      for (uint32_t warp = 0; warp < warps; warp++)
        for (uint32_t lane = 0; lane < warp_size; lane++)
          round.add_down(Rows<F>::load(&inverses.at(warp * Rows<F>::element_row + lane)), {&stage[lane]}, warp, warps,
                         lane);
    };
    const PointTable table{reinterpret_cast<const char *>(points.data()), reinterpret_cast<const char *>(images.data()),
                           total};
    if (number == 0)
      pass(Round<Gathered<F>>{tasks.data(), classes, groups, 0, entries.data(), table, rows.data(), rows.data()});
    else
      pass(Round<Stored<F>>{tasks.data(), classes, groups, number, nullptr, {}, rows.data(), products.data()});
  }
  for (uint32_t place = 0; place < made; place++) {
    const Task task = tasks[place];
    if (task.length == 0) continue;
    const auto group = TreeGroup::of<F>(place / width, place % width, tasks.data(), classes);
    const Stored<F> list{&rows.at((size_t)group.row * Rows<F>::point_row + place % width)};
    Xyzz<F> sum = Xyzz<F>::infinity(), known = sum;
    const uint32_t left = Halving::left(group.length, rounds);
    check(left <= (longest > 4 ? 2u : 1u), "points left", (int)task.length, (int)left);
    for (uint32_t i = 0; i < left; i++) sum.add(Affine<F>{list.x(i), list.y(i)});
    for (uint32_t i = 0; i < task.length; i++) {
      const uint32_t entry = entries[task.start + i];
      const Affine<F> p = numbered[entry & 0x7fffffffu];
      known.add(entry >> 31 ? -p : p);
    }
    check(sum.to_affine() == known.to_affine(), "tree", (int)task.length, (int)task.out);
  }
}

template <class F>
void all_trees(const F &b) {
  trees<F>(b, 1, 40, 0, 1, 1);
  trees<F>(b, 2, 100, 5, 1, 1);
  trees<F>(b, 3, 100, 0, 3, 1);
  trees<F>(b, 5, 200, 3, 4, 2);
  trees<F>(b, 17, 300, 0, 8, 1);
  trees<F>(b, 64, 200, 4, 4, 3);
  trees<F>(b, 64, 300, 0, 100, 1);
  trees<F>(b, 64, 300, 2, 2, 1000);
}

template <class F>
F root(uint32_t log_n) {  // of order 2^log_n
  uint64_t r[F::P::limbs];
  for (int i = 0; i < F::P::limbs; i++) r[i] = F::P::modulus[i];
  r[0] -= 1;
  uint64_t shifted[F::P::limbs];
  for (int i = 0; i < F::P::limbs; i++) {
    const uint64_t next = i + 1 < F::P::limbs ? r[i + 1] : 0;
    shifted[i] = log_n ? r[i] >> log_n | next << (64 - log_n) : r[i];
  }
  return F::from_u64(F::P::non_residue).pow(shifted, F::P::limbs);
}

// One pass over all tiles, as the kernels run it; `put` and `get` go through the slots of shared memory.
template <int each, class F>
void run_pass(NttPass<each> pass, std::vector<F> &data, const std::vector<F> &table, NttMode mode, bool backwards) {
  constexpr int elements = 1 << each;
  const uint32_t size = 1u << pass.log_tile(), threads = size >> each;
  std::vector<F> shared(size);
  for (uint32_t tile = 0; tile < data.size() / size; tile++) {
    std::set<uint32_t> seen;
    for (uint32_t u = 0; u < size; u++) {
      seen.insert(ntt_slot(u));
      shared.at(ntt_slot(u)) = data.at(pass.index(tile, u));
    }
    check(seen.size() == size && *seen.rbegin() == size - 1, "slots", (int)size);
    for (int step = 0; step < pass.groups(); step++) {
      const int g = backwards ? pass.groups() - 1 - step : step;
      for (uint32_t t = 0; t < threads; t++) {
        F x[elements];
        for (int j = 0; j < elements; j++) x[j] = shared.at(ntt_slot(pass.element(g, t, j)));
        uint32_t q = pass.index(tile, pass.element(g, t, 0)) >> (pass.log_n - pass.stage(g));
        if (mode.coset) q += 1u << pass.stage(g);
        const int skipped = pass.skipped(g);
        if (backwards)
          q ? merge_group<each, false>(x, q, skipped, table.data(), mode)
            : merge_group<each, true>(x, q, skipped, table.data(), mode);
        else
          q ? split_group<each, false>(x, q, skipped, table.data(), mode)
            : split_group<each, true>(x, q, skipped, table.data(), mode);
        for (int j = 0; j < elements; j++) shared.at(ntt_slot(pass.element(g, t, j))) = x[j];
      }
      // Eight neighbouring threads of an access meet eight different slots modulo 8.
      for (uint32_t t = 0; t + 8 <= threads; t += 8) {
        std::set<uint32_t> banks;
        for (uint32_t k = 0; k < 8; k++) banks.insert(ntt_slot(pass.element(g, t + k, 0)) % 8);
        check(banks.size() == 8, "bank conflict", g, (int)pass.bits);
      }
    }
    for (uint32_t u = 0; u < size; u++) data.at(pass.index(tile, u)) = shared.at(ntt_slot(u));
  }
}

template <int each, class F>
void transforms(uint32_t log_n, std::vector<std::vector<uint32_t>> plan) {  // {bits, columns} of each pass
  const uint32_t n = 1u << log_n;
  std::vector<F> table(n), data(n);
  for (uint32_t k = 0; k < n; k++) {
    table[k] = F::one();
    for (uint32_t j = 0; j < log_n; j++)
      if (k >> j & 1) table[k] = table[k] * root<F>(j + 2);
    data[k] = random_element<F>();
  }
  for (const bool coset : {false, true}) {
    const F w = root<F>(log_n), shift = coset ? root<F>(log_n + 1) : F::one();
    std::vector<F> out = data;
    std::vector<NttPass<each>> passes;
    uint32_t first = 0;
    for (const auto &p : plan) {
      passes.push_back({log_n, first, p[0], p[1]});
      first += p[0];
    }
    check(first == log_n, "plan", (int)log_n);
    for (const auto &p : passes) run_pass<each>(p, out, table, {false, coset}, false);
    for (uint32_t i = 0; i < n; i += 1 + n / 64) {
      F x = shift, value = F::zero();
      for (uint32_t k = 0; k < i; k++) x = x * w;
      for (uint32_t k = n; k-- > 0;) value = value * x + data[k];
      check(out[reverse_bits(i, log_n)] == value, "transform", (int)log_n, each);
    }
    // Back, from reversed to natural order; the factor n stays.
    for (size_t p = passes.size(); p-- > 0;) run_pass<each>(passes[p], out, table, {true, coset}, true);
    const F factor = F::from_u64(n);
    for (uint32_t i = 0; i < n; i++) check(out[i] == data[i] * factor, "way back", (int)log_n, each);
  }
}

template <class F>
void all_transforms() {
  transforms<2, F>(2, {{2, 0}});
  transforms<2, F>(3, {{3, 0}});
  transforms<3, F>(4, {{4, 0}});
  transforms<2, F>(6, {{6, 0}});
  transforms<3, F>(7, {{7, 0}});
  transforms<2, F>(9, {{3, 2}, {3, 2}, {3, 2}});
  transforms<3, F>(10, {{5, 2}, {5, 1}});
  transforms<2, F>(11, {{4, 3}, {4, 2}, {3, 3}});
  transforms<2, F>(11, {{6, 1}, {5, 1}});
  transforms<2, F>(12, {{10, 1}, {2, 9}});
}

}  // namespace

int main() {
  fields<Bn254Fq>("bn254 Fq");
  fields<Bn254Fr>("bn254 Fr");
  fields<Bls12_381Fq>("bls12_381 Fq");
  fields<Bls12_381Fr>("bls12_381 Fr");
  digits<Bn254Fr>(254);
  digits<Bls12_381Fr>(255);
  tasks();
  all_trees<Bn254Fq>(Bn254::b1());
  all_trees<Bls12_381Fq>(Bls12_381::b1());
  all_transforms<Bn254Fr>();
  all_transforms<Bls12_381Fr>();
  if (failures) printf("%d failures\n", failures);
  return failures ? 1 : 0;
}
