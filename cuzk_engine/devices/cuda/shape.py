"""How an MSM on a GPU is cut, and what its arrays take: plain arithmetic, without CuPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from cuzk_engine.curves import Curve

TILE: Final = 8192  # entries a block sorts; as in sort.cu
SCAN_TILE: Final = 4096
LEVELS: Final = 7
LONGEST_PIECE: Final = 64
WARP: Final = 32
_PART: Final = 1 << 26  # entries of a part that leave nothing to gain from larger ones
_LEAST_PARTS: Final = 2  # so that the first one's reduction runs beside the second one's accumulation
_MANY: Final = 1 << 20  # sums that keep a device busy eight at a time
ALIGNMENT: Final = 512
_CONSTANT_ROWS: Final = 128  # roots of unity, inverse sizes and powers of a shift behind a table of twiddles


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
    def entries(self) -> int:
        return self.n * self.windows

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
        average = min(self.piece, max(1, self.n >> self.buckets_log))
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


def shape(
    curve: Curve,
    n: int,
    group: int = 1,
    *,
    bits: int | None = None,
    longest: int | None = None,
    method: Method | None = None,
    budget: int | None = None,
) -> Shape:
    """What takes the least time on an H200, by a model fitted to measured times; ``budget``: bytes that it may take
    beside points and scalars. Where nothing is that small, what takes the least memory."""
    forms = [
        _cut(curve, n, group, bits, longest, choice) for choice in ((method,) if method else _methods(curve, n, group))
    ]
    sum_bytes = 4 * curve.n8q * group
    for form in forms:
        least = min(form.windows, max(_LEAST_PARTS, -(-form.entries // _PART)))
        for parts in range(least, form.windows + 1):
            found = replace(form, parts=parts)
            if budget is None or scratch_bytes(found, sum_bytes) <= budget:
                return found
    return replace(forms[-1], parts=forms[-1].windows)


def _methods(curve: Curve, n: int, group: int) -> tuple[Method, ...]:
    """Fastest first."""
    return ("affine", "xyzz") if curve.limbs == 6 and n >= 1 << 19 else ("xyzz",)


def _cut(curve: Curve, n: int, group: int, bits: int | None, longest: int | None, method: Method) -> Shape:
    """The window with the fewest multiplications: 10 or 7 an entry, 28 a bucket."""
    order_bits = curve.r.bit_length()
    an_entry = 10 if method == "xyzz" else 7

    def windows(c: int) -> int:
        return -(-order_bits // c)

    c = bits or min(range(8, 23), key=lambda k: windows(k) * (an_entry * n + (28 << (k - 1))))
    average = n >> (c - 1)
    longest = longest or min(max(64, 2 * average), 1024)
    rounds = 0 if method == "xyzz" else max(1, (longest - 1).bit_length())
    return Shape(n, c, windows(c), longest, group, rounds)


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
    return aligned_size(sum_bytes) + form.work_sets * aligned_size(part_bytes(form, sum_bytes))


def part_bytes(form: Shape, sum_bytes: int) -> int:
    """The sum over the arrays of the largest part, each aligned."""
    part = form.part(form.groups()[0][1])
    return sum(aligned_size(nbytes) for nbytes in _arrays(part, sum_bytes))


def _arrays(part: Shape, sum_bytes: int) -> Iterator[int]:
    yield 4 * part.entries  # digits
    counts = part.segments * -(-part.n // TILE)
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
