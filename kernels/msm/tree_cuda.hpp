// Sums of tasks as trees of affine additions: lambda = (y2 - y1) / (x2 - x1), with shared inversions.
//
// A round halves the list of each task: of n points, point j takes point j + ceil(n / 2), so that an odd one stays where
// it is. The lists lie in rows of one point a thread of a warp, and the tasks of a warp (a group) have the same length:
// nothing needs an index, and every access but the first round's, which gathers, is a whole line. A thread goes through
// the pairs of the groups of its warp three times a round:
//   products: the product of all denominators before each pair, and of all of them        1 M
//   inverses: those of the last products, shared again, see invert_totals
//   sums:     backwards, the inverse of each denominator and the sum                      4 M + 1 S
//
// Pairs that cannot be divided by x2 - x1 take 2 y for it (equal points), or 1 (an infinite operand, opposite points).
// Places without a task repeat the first task of their group; nobody reads the result.
#pragma once
#include "../ec/point.hpp"
#include "../ff/async_copy_cuda.hpp"
#include "table_cuda.hpp"
#include "tasks_cuda.hpp"

namespace cuzk {
namespace CUZK_PATH {

constexpr uint32_t warp_size = 32;

// How many warps share `groups`: `each` groups a warp, fewer where that would leave less than `least` warps.
CUZK_INLINE uint32_t tree_warps(uint32_t groups, uint32_t each, uint32_t least) {
  const uint32_t wanted = (groups + each - 1) / each, filled = groups < least ? groups : least;
  return wanted > filled ? wanted : filled;
}

// A list of n points in a round.
struct Halving {
  uint32_t pairs, half;

  static CUZK_INLINE Halving of(uint32_t length, uint32_t round) {
    const uint32_t n = left(length, round);
    return {n / 2, (n + 1) / 2};
  }
  static CUZK_INLINE uint32_t left(uint32_t length, uint32_t rounds) { return (length + (1u << rounds) - 1) >> rounds; }
  CUZK_INLINE bool odd() const { return half != pairs; }
};

// What one thread sees of a group.
struct TreeGroup {
  uint32_t length, row;  // row: of its first point, after the first round
  uint32_t start;        // of this thread's entries

  template <class F>
  static CUZK_INLINE TreeGroup of(uint32_t g, uint32_t lane, const Task *tasks, Classes classes) {
    constexpr uint32_t width = warp_size / F::lanes;
    const Task first = tasks[(uint64_t)g * width], own = tasks[(uint64_t)g * width + lane / F::lanes];
    const uint32_t row = classes.rows[first.length] + (g - classes.groups[first.length]) * ((first.length + 1) / 2);
    return {first.length, row, own.length ? own.start : first.start};
  }
};

// Rows of `quads` quads a thread.
template <class F>
struct Rows {
  using Component = typename F::F;
  static constexpr uint32_t component_quads = Component::bytes / 16;
  static constexpr uint32_t point_quads = 2 * component_quads;
  static constexpr uint32_t point_row = point_quads * warp_size;  // in quads
  static constexpr uint32_t element_row = component_quads * warp_size;

  static CUZK_INLINE F load(const Quad *p) {
    Component c;
CUZK_UNROLL
    for (uint32_t k = 0; k < component_quads; k++) {
      const Quad q = p[k * warp_size];
      c.v[4 * k] = q.x, c.v[4 * k + 1] = q.y, c.v[4 * k + 2] = q.z, c.v[4 * k + 3] = q.w;
    }
    return F::of_component(c);
  }
  static CUZK_INLINE void store(Quad *p, const F &a) {
    const Component c = a.component();
CUZK_UNROLL
    for (uint32_t k = 0; k < component_quads; k++)
      p[k * warp_size] = Quad{c.v[4 * k], c.v[4 * k + 1], c.v[4 * k + 2], c.v[4 * k + 3]};
  }
  static CUZK_INLINE void store(Quad *p, const Affine<F> &a) {
    store(p, a.x);
    store(p + element_row, a.y);
  }
};

enum class Part : uint32_t { X1, X2, Before, Y1, Y2, Inverse };

// What a thread has of a pair in shared memory: copied there while the pair before is added, and read when it is needed,
// which saves registers.
template <class F>
struct Stage {
  static constexpr uint32_t columns = 128;  // threads of a block
  static constexpr uint32_t quads = 6 * Rows<F>::component_quads;
  Quad *buffer;  // this thread's column

  CUZK_INLINE Quad *at(Part part) const { return buffer + (uint32_t)part * Rows<F>::component_quads * columns; }
  CUZK_INLINE F take(Part part) const {
    typename F::F c;
    const Quad *p = at(part);
CUZK_UNROLL
    for (uint32_t k = 0; k < Rows<F>::component_quads; k++) {
      const Quad q = p[k * columns];
      c.v[4 * k] = q.x, c.v[4 * k + 1] = q.y, c.v[4 * k + 2] = q.z, c.v[4 * k + 3] = q.w;
    }
    return F::of_component(c);
  }
  CUZK_INLINE void put(Part part, const F &a) const {
    const typename F::F c = a.component();
    Quad *p = at(part);
CUZK_UNROLL
    for (uint32_t k = 0; k < Rows<F>::component_quads; k++)
      p[k * columns] = Quad{c.v[4 * k], c.v[4 * k + 1], c.v[4 * k + 2], c.v[4 * k + 3]};
  }
};

template <class F>
CUZK_INLINE void copy_row(Quad *to, const Quad *row) {
CUZK_UNROLL
  for (uint32_t k = 0; k < Rows<F>::component_quads; k++)
    copy_quad_async(to + k * Stage<F>::columns, row + k * warp_size);
}

// Points of the first round, by the entries of a task.
template <class F>
struct Gathered {
  using Field = F;
  static constexpr bool first_round = true;
  const uint32_t *list;
  const PointTable &table;

  CUZK_INLINE uint32_t entry(uint32_t i) const { return list[i]; }
  CUZK_INLINE F x(uint32_t entry) const { return F::load(table.x<F>(entry)); }
  CUZK_INLINE F y(uint32_t entry) const { return signed_y(F::load(table.y<F>(entry)), entry); }
  static CUZK_INLINE F signed_y(const F &y, uint32_t entry) { return F::select(entry >> 31 != 0, -y, y); }
  CUZK_INLINE void copy(Quad *to, uint32_t entry, bool y) const {
    const char *p = (y ? table.y<F>(entry) : table.x<F>(entry)) + F::component_offset();
CUZK_UNROLL
    for (uint32_t k = 0; k < Rows<F>::component_quads; k++) copy_quad_async(to + k * Stage<F>::columns, p + 16 * k);
  }
};

// Points of later rounds, at this thread's place in a group's rows; an entry is a point's number.
template <class F>
struct Stored {
  using Field = F;
  static constexpr bool first_round = false;
  const Quad *rows;

  CUZK_INLINE uint32_t entry(uint32_t i) const { return i; }
  CUZK_INLINE const Quad *at(uint32_t entry) const { return rows + (uint64_t)entry * Rows<F>::point_row; }
  CUZK_INLINE F x(uint32_t entry) const { return Rows<F>::load(at(entry)); }
  CUZK_INLINE F y(uint32_t entry) const { return Rows<F>::load(at(entry) + Rows<F>::element_row); }
  static CUZK_INLINE F signed_y(const F &y, uint32_t) { return y; }
  CUZK_INLINE void copy(Quad *to, uint32_t entry, bool y) const {
    copy_row<F>(to, at(entry) + (y ? Rows<F>::element_row : 0));
  }
};

}  // namespace CUZK_PATH
}  // namespace cuzk
