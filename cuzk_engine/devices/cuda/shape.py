"""How an MSM on a GPU is cut, and what its arrays take: plain arithmetic, without CuPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from cuzk_engine.curves import Curve

TILE: Final = 8192  # entries a block sorts; as in sort.cu
SCAN_TILE: Final = 4096
LEVELS: Final = 7
LONGEST_PIECE: Final = 64
WARP: Final = 32
_BUDGET: Final = 24 << 30  # bytes of an MSM where nobody says how many it may take
_MANY: Final = 1 << 20  # sums that keep a device busy eight at a time
ALIGNMENT: Final = 512
_CONSTANT_ROWS: Final = 128  # roots of unity, inverse sizes and powers of a shift behind a table of twiddles

HALF_BITS: Final = 128  # that the windows of a half must cover; as in ec/endomorphism_cuda.hpp

Method = Literal["xyzz", "affine"]


def aligned_size(nbytes: int) -> int:
    """What an array of so many bytes takes of an arena."""
    return max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT


def table_rows(log_n: int) -> int:
    """Rows of 32 bytes of an NTT table for sizes up to 2^log_n: the twiddles, and the constants that make them."""
    return (1 << log_n) + _CONSTANT_ROWS


@dataclass(frozen=True, slots=True)
class Shape:
    """How an MSM of ``n`` points is cut: windows of ``bits`` bits, tasks of at most ``longest`` entries.

    ``halves``: numbers that each scalar is split into; with 2, those of half the length for a point and its image under
    the curve's endomorphism (ec/endomorphism_cuda.hpp), so that there are half as many windows and buckets.
    ``rounds`` of affine additions halve the lists of the tasks down to one point; 0: XYZZ additions instead.
    ``parts``: groups of windows that are worked on one after another, two at a time at most, in the same memory.
    """

    n: int
    bits: int
    windows: int
    longest: int
    lanes: int = 1  # threads that hold a coordinate: 1 in G1, 2 in G2
    rounds: int = 0
    parts: int = 1
    halves: int = 1

    @property
    def method(self) -> Method:
        return "affine" if self.rounds else "xyzz"

    @property
    def buckets_log(self) -> int:
        return self.bits - 1

    @property
    def buckets(self) -> int:
        return self.windows << self.buckets_log

    @property
    def numbers(self) -> int:
        """Digits of a window."""
        return self.n * self.halves

    @property
    def entries(self) -> int:
        return self.numbers * self.windows

    @property
    def slots(self) -> int:
        """Most partial sums of buckets longer than a task: a last, shorter one for each bucket."""
        return self.entries // self.piece + self.entries // (self.longest + 1) + 1

    @property
    def piece(self) -> int:
        """Most entries of a piece of a bucket longer than a task."""
        return min(self.longest, LONGEST_PIECE)

    @property
    def most_tasks(self) -> int:
        return min(self.entries, self.buckets + self.slots)

    @property
    def width(self) -> int:
        """Tasks of a warp, which have the same length where there are rounds."""
        return WARP // self.lanes if self.rounds else 1

    @property
    def task_groups(self) -> int:
        """Most groups of ``width`` tasks of one length; not full ones at the end of each length."""
        return self.most_tasks // self.width + (self.longest if self.rounds else 0)

    @property
    def rows(self) -> int:
        """Most rows of points after the first round: half of each list, rounded up, and the groups that are not
        full."""
        if not self.rounds:
            return 0
        return (self.entries + self.most_tasks) // 2 // self.width + (self.longest + 1) ** 2 // 4

    def share(self, number: int, pairs: int) -> int:
        """How many groups make about ``pairs`` pairs a thread in a round."""
        average = min(self.piece, max(1, self.numbers >> self.buckets_log))
        return min(64, max(1, pairs // max(1, average >> (number + 1))))

    @property
    def work_sets(self) -> int:
        """How many parts have memory at a time."""
        return min(self.parts, 2)

    def groups(self) -> tuple[tuple[int, int], ...]:
        """First window and number of windows of each part, highest windows first, sizes falling."""
        count = min(self.parts, self.windows)
        sizes = [(self.windows + k) // count for k in range(count)][::-1]
        ends = [self.windows - sum(sizes[:k]) for k in range(count)]
        return tuple((end - size, size) for end, size in zip(ends, sizes, strict=True))

    @property
    def part_entries(self) -> int:
        """Of the largest part."""
        return self.numbers * self.groups()[0][1]

    def part(self, windows: int) -> Shape:
        """The same of some windows."""
        return replace(self, windows=windows, parts=1)

    @property
    def low_bits(self) -> int:
        """Bits of a bucket's number that the second partition of the sort goes by."""
        return self.buckets_log // 2

    @property
    def segments(self) -> int:
        """Parts of the first partition: windows times values of the high bits."""
        return self.windows << (self.buckets_log - self.low_bits)


# Nanoseconds on an H200, measured: an entry, sort included, and a bucket, by limbs, group and method.
_COSTS: Final[dict[tuple[int, int, Method], tuple[float, float]]] = {
    (6, 1, "affine"): (0.284, 1.25),
    (6, 1, "xyzz"): (0.386, 0.9),
    (6, 2, "affine"): (0.80, 6.3),
    (6, 2, "xyzz"): (1.28, 5.3),
    (4, 1, "affine"): (0.177, 0.59),
    (4, 1, "xyzz"): (0.178, 0.44),
    (4, 2, "affine"): (0.39, 1.77),
    (4, 2, "xyzz"): (0.59, 1.37),
}
_ROUND: Final = 1e5  # nanoseconds of a round of affine additions that are latency


def shape(
    curve: Curve,
    n: int,
    group: int = 1,
    *,
    bits: int | None = None,
    longest: int | None = None,
    method: Method | None = None,
    budget: int | None = None,
    halves: int = 2,
) -> Shape:
    """What takes the least time on an H200, by a model of measured times. ``budget``: bytes that it may take beside
    points and scalars; more parts take less of them, and each a little time. Where nothing is that small, what takes
    the least memory."""
    budget = _BUDGET if budget is None else budget
    methods = (method,) if method else get_args(Method)
    forms = [_cut(curve, n, group, bits, longest, choice, halves) for choice in methods]
    forms.sort(key=lambda form: _cost(curve, form))
    sum_bytes = 4 * curve.n8q * group
    for form in forms:
        for parts in range(1, form.windows + 1):
            found = replace(form, parts=parts)
            if found.part_entries < 1 << 32 and scratch_bytes(found, sum_bytes) <= budget:
                return found
    return min((replace(form, parts=form.windows) for form in forms), key=lambda form: scratch_bytes(form, sum_bytes))


def _cost(curve: Curve, form: Shape) -> float:
    an_entry, a_bucket = _COSTS[curve.limbs, form.lanes, form.method]
    return form.entries * an_entry + form.buckets * a_bucket + form.rounds * _ROUND


def _cut(curve: Curve, n: int, group: int, bits: int | None, longest: int | None, method: Method, halves: int) -> Shape:
    scalar_bits = HALF_BITS if halves == 2 else curve.r.bit_length()

    def of(c: int) -> Shape:
        average = n * halves >> (c - 1)
        most = longest or min(max(64, 2 * average), 1024)
        rounds = 0 if method == "xyzz" else max(1, (most - 1).bit_length())
        return Shape(n, c, -(-scalar_bits // c), most, group, rounds, halves=halves)

    return of(bits) if bits else min((of(c) for c in range(8, 23)), key=lambda form: _cost(curve, form))


def fold_steps(left: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Logarithms of how many sums a thread adds in the next level of rows and of columns."""
    return [min(x, 3 if n >= _MANY else 2) for x, n in zip(left, sizes, strict=True)]


def tree_warps(groups: int, each: int, least: int) -> int:
    """As in tree_cuda.hpp."""
    return max(-(-groups // each), min(groups, least))


# Pairs a thread of a round that make its share of an inversion small, and warps that fill the device.
TREE_PAIRS: Final = 32
TREE_LEAST: Final = 132 * 16
TREE_SHARE: Final = 32  # totals that share an inversion, fewer where the warps that invert would be less than these:
TREE_INVERTERS: Final = 132 * 4


def scratch_bytes(form: Shape, sum_bytes: int) -> int:
    """What ``Msm.run`` takes from its allocator, nothing given back in between."""
    if form.n == 0:
        return aligned_size(sum_bytes)
    images = aligned_size(image_bytes(form, sum_bytes)) if form.halves == 2 else 0
    return aligned_size(sum_bytes) + images + form.work_sets * aligned_size(part_bytes(form, sum_bytes))


def image_bytes(form: Shape, sum_bytes: int) -> int:
    """The images of the points: a coordinate each."""
    return form.n * sum_bytes // 4


def part_bytes(form: Shape, sum_bytes: int) -> int:
    """The sum over the arrays of the largest part, each aligned."""
    part = form.part(form.groups()[0][1])
    return sum(aligned_size(nbytes) for nbytes in _arrays(part, sum_bytes))


def _arrays(part: Shape, sum_bytes: int) -> Iterator[int]:
    yield 4 * part.entries  # digits
    counts = part.segments * -(-part.numbers // TILE)
    yield from (4 * counts, 4 * (-(-counts // SCAN_TILE) + 1))
    yield from (2 * part.entries, 4 * part.entries, 4 * (part.segments + 1), 4 * (part.segments + 1))
    yield from (4 * part.buckets, 4 * (-(-part.buckets // SCAN_TILE) + 1), 4 * part.buckets, 4 * part.entries)
    yield (part.buckets + part.slots) * sum_bytes
    yield 4 * (part.longest + 1 + 4 + LEVELS + 1)
    yield 8 * (part.longest + 1)
    yield 4 * (4 + LEVELS) * (part.entries // (part.longest + 1) + 1)
    yield 12 * part.task_groups * part.width
    yield 16 * LEVELS * (part.slots // 2 + 1)
    if part.rounds:
        row = WARP * sum_bytes // (4 * part.lanes)  # of one element
        yield from (part.rows * 2 * row, (part.rows + 1) // 2 * row)
        warps = tree_warps(part.task_groups, part.share(0, TREE_PAIRS), TREE_LEAST)
        yield from (warps * row, warps * row)
    yield from _reduction(part, sum_bytes)


def _reduction(part: Shape, sum_bytes: int) -> Iterator[int]:
    column_log = part.buckets_log // 2
    row_log = part.buckets_log - column_log
    sizes, left = [part.buckets] * 2, [column_log, row_log]
    while any(left):
        steps = fold_steps(left, sizes)
        for k in range(2):
            sizes[k] >>= steps[k]
            left[k] -= steps[k]
            if steps[k]:
                yield sizes[k] * sum_bytes
    yield from ((log + 1) * part.windows * sum_bytes for log in (row_log, column_log))
    yield part.windows * sum_bytes
