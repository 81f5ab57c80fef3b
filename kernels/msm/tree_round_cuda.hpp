// A round of the trees: its pairs, its two passes, and the inversions between them; see tree_cuda.hpp.
#pragma once
#include "tree_cuda.hpp"

namespace cuzk {
namespace CUZK_PATH {

// What a pair is that has equal x or an x of zero.
template <class F>
struct Exception {
  bool first_infinite, second_infinite, doubling, cancels;

  static CUZK_INLINE bool possible(const F &x1, const F &x2, const F &difference) {
    const bool a = x1.is_zero(), b = x2.is_zero(), c = difference.is_zero();
    return F::any(a || b || c);
  }
  static CUZK_INLINE Exception of(const Affine<F> &p, const Affine<F> &q) {
    const bool p_zero = p.is_infinity(), q_zero = q.is_infinity(), y_zero = p.y.is_zero();
    const bool same_x = p.x == q.x, same_y = p.y == q.y;
    Exception e;
    e.first_infinite = p_zero;
    e.second_infinite = q_zero;
    const bool same = same_x && !p_zero && !q_zero;
    e.doubling = same && same_y && !y_zero;
    e.cancels = same && !e.doubling;
    return e;
  }
  CUZK_INLINE F denominator(const F &difference, const F &y1) const {
    const F d = F::select(doubling, y1.dbl(), difference);
    return F::select(first_infinite || second_infinite || cancels, F::one(), d);
  }
};

// Where the products before the pairs of a group go: in the first round to the x of the sums to come, which are not
// there yet; later to rows of their own, half as many as there are rows of points.
template <class F, bool first_round>
struct Products {
  Quad *at;

  static CUZK_INLINE Products of(Quad *base, uint32_t row, uint32_t lane) {
    return {base + (first_round ? (uint64_t)row * Rows<F>::point_row : (uint64_t)(row / 2) * Rows<F>::element_row) +
            lane};
  }
  CUZK_INLINE Quad *operator[](uint32_t j) const {
    return at + (uint64_t)j * (first_round ? Rows<F>::point_row : Rows<F>::element_row);
  }
};

// The arrays of a round; Source is Gathered or Stored.
template <class Source>
struct Round {
  using F = typename Source::Field;
  static constexpr bool first_round = Source::first_round;

  const Task *tasks;
  Classes classes;
  uint32_t groups, number;  // number of the round, 0 for the first
  const uint32_t *entries;  // first round
  PointTable table;         // first round
  Quad *rows, *products;    // products: rows, in the first round

  CUZK_INLINE Source source(const TreeGroup &group, uint32_t lane) const {
    if constexpr (first_round)
      return {entries + group.start, table};
    else
      return {rows + (uint64_t)group.row * Rows<F>::point_row + lane};
  }

  // The products before each pair of this thread, and the product of all.
  CUZK_INLINE F multiply_up(uint32_t warp, uint32_t warps, uint32_t lane) const {
    F product = F::one();
    for (uint32_t g = warp; g < groups; g += warps) {
      const TreeGroup group = TreeGroup::of<F>(g, lane, tasks, classes);
      const Halving list = Halving::of(group.length, number);
      const Source from = source(group, lane);
      const auto before = Products<F, first_round>::of(products, group.row, lane);
      for (uint32_t j = 0; j < list.pairs; j++) {
        const uint32_t e1 = from.entry(j), e2 = from.entry(j + list.half);
        const F x1 = from.x(e1), x2 = from.x(e2);
        F d = x2 - x1;
        if (Exception<F>::possible(x1, x2, d)) {
          const F y1 = from.y(e1);
          d = Exception<F>::of({x1, y1}, {x2, from.y(e2)}).denominator(d, y1);
        }
        Rows<F>::store(before[j], product);
        product = product * d;
      }
    }
    return product;
  }

  // The sums, given the inverse of what multiply_up returned.
  CUZK_INLINE void add_down(const F &inverse, Stage<F> stage, uint32_t warp, uint32_t warps, uint32_t lane) const {
    if (warp >= groups) return;
    stage.put(Part::Inverse, inverse);
    uint32_t g = warp + (groups - 1 - warp) / warps * warps;
    while (true) {
      const TreeGroup group = TreeGroup::of<F>(g, lane, tasks, classes);
      const Halving list = Halving::of(group.length, number);
      const Source from = source(group, lane);
      Quad *to = rows + (uint64_t)group.row * Rows<F>::point_row + lane;
      Adder adder{from, Products<F, first_round>::of(products, group.row, lane), list, stage};
      for (uint32_t j = list.pairs; j-- > 0;)
        Rows<F>::store(to + (uint64_t)j * Rows<F>::point_row, adder.add());
      if (first_round && list.odd()) {
        const uint32_t entry = from.entry(list.pairs);
        Rows<F>::store(to + (uint64_t)list.pairs * Rows<F>::point_row, Affine<F>{from.x(entry), from.y(entry)});
      }
      if (g == warp) return;
      g -= warps;
    }
  }

 private:
  // The pairs of one group, last to first. While one is added, the next one is fetched.
  struct Adder {
    const Source &from;
    Products<F, first_round> before;
    Halving list;
    Stage<F> stage;
    uint32_t next;               // the pair after (below) the one that is fetched
    uint32_t e1 = 0, e2 = 0;     // the entries of the one that is fetched

    CUZK_INLINE Adder(const Source &from, const Products<F, first_round> &before, Halving list, Stage<F> stage)
        : from(from), before(before), list(list), stage(stage), next(list.pairs) {
      advance();
      fetch_x();
      fetch_y();
    }

    // The sum of the fetched pair. What stands as Inverse, that of the product up to this pair, becomes that of the
    // product before it.
    CUZK_INLINE Affine<F> add() {
      const uint32_t first = e1, second = e2;
      advance();
      copies_wait<1>();
      F d = stage.take(Part::X2) - stage.take(Part::X1);
      const bool exceptional = Exception<F>::possible(stage.take(Part::X1), stage.take(Part::X2), d);
      Exception<F> e{};
      if (exceptional) {
        copies_wait<0>();
        e = Exception<F>::of(operand(Part::X1, first), operand(Part::X2, second));
        d = e.denominator(d, y(Part::Y1, first));
      }
      const F quotient = stage.take(Part::Inverse) * stage.take(Part::Before);
      stage.put(Part::Inverse, stage.take(Part::Inverse) * d);
      copies_wait<0>();
      F numerator = y(Part::Y2, second) - y(Part::Y1, first);
      if (exceptional) {
        const F xx = stage.take(Part::X1).sqr();
        numerator = F::select(e.doubling, xx.dbl() + xx, numerator);
      }
      const F slope = numerator * quotient;
      Affine<F> sum;
      sum.x = slope.sqr() - stage.take(Part::X1) - stage.take(Part::X2);
      const F back = stage.take(Part::X1) - sum.x;
      if (!exceptional) fetch_x();
      sum.y = slope * back - y(Part::Y1, first);
      if (exceptional) {
        sum = select(e.second_infinite, operand(Part::X1, first), sum);
        sum = select(e.first_infinite, operand(Part::X2, second), sum);
        sum = select(e.cancels, Affine<F>::infinity(), sum);
        fetch_x();
      }
      fetch_y();
      return sum;
    }

   private:
    bool more = false;  // whether there is a pair to fetch

    CUZK_INLINE void advance() {
      more = next > 0;
      if (!more) return;
      next--;
      e1 = from.entry(next);
      e2 = from.entry(next + list.half);
    }
    CUZK_INLINE void fetch_x() const {
      if (more) {
        from.copy(stage.at(Part::X1), e1, false);
        from.copy(stage.at(Part::X2), e2, false);
        copy_row<F>(stage.at(Part::Before), before[next]);
      }
      copies_commit();
    }
    CUZK_INLINE void fetch_y() const {
      if (more) {
        from.copy(stage.at(Part::Y1), e1, true);
        from.copy(stage.at(Part::Y2), e2, true);
      }
      copies_commit();
    }

    CUZK_INLINE F y(Part part, uint32_t entry) const { return from.signed_y(stage.take(part), entry); }
    CUZK_INLINE Affine<F> operand(Part x, uint32_t entry) const {
      return {stage.take(x), y(x == Part::X1 ? Part::Y1 : Part::Y2, entry)};
    }
    static CUZK_INLINE Affine<F> select(bool first, const Affine<F> &a, const Affine<F> &b) {
      return {F::select(first, a.x, b.x), F::select(first, a.y, b.y)};
    }
  };
};

// Inverses of this thread's elements of rows first, first + step, ... below count, one inversion for all of them.
// None is zero. `totals` and `inverses` at this thread's place in row 0.
template <class F>
CUZK_INLINE void invert_totals(const Quad *totals, Quad *inverses, uint32_t first, uint32_t step, uint32_t count) {
  if (first >= count) return;
  F product = F::one();
  uint32_t row = first;
  while (true) {
    Rows<F>::store(inverses + (uint64_t)row * Rows<F>::element_row, product);
    product = product * Rows<F>::load(totals + (uint64_t)row * Rows<F>::element_row);
    if (step >= count - row) break;
    row += step;
  }
  F inverse = product.inverse();
  while (true) {
    Quad *to = inverses + (uint64_t)row * Rows<F>::element_row;
    const F before = Rows<F>::load(to);
    Rows<F>::store(to, inverse * before);
    inverse = inverse * Rows<F>::load(totals + (uint64_t)row * Rows<F>::element_row);
    if (row == first) return;
    row -= step;
  }
}

}  // namespace CUZK_PATH
}  // namespace cuzk
