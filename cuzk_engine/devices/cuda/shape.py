"""How an MSM on a GPU is cut, and what its arrays take: plain arithmetic, without CuPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cuzk_engine.curves import Curve

TILE: Final = 8192  # entries a block sorts; as in sort.cu
SCAN_TILE: Final = 4096
LEVELS: Final = 7
LONGEST_PIECE: Final = 64
_LONG: Final = 1 << 23  # points from which on the last reduction is short beside the whole
_MANY: Final = 1 << 20  # sums that keep a device busy eight at a time
ALIGNMENT: Final = 512
_CONSTANT_ROWS: Final = 128  # roots of unity, inverse sizes and powers of a shift behind a table of twiddles


def aligned_size(nbytes: int) -> int:
    """What an array of so many bytes takes of an arena."""
    return max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT


def table_rows(log_n: int) -> int:
    """Rows of 32 bytes of an NTT table for sizes up to 2^log_n: the twiddles, and the constants that make them."""
    return (1 << log_n) + _CONSTANT_ROWS


@dataclass(frozen=True, slots=True)
class Shape:
    """How an MSM of ``n`` points is cut: windows of ``bits`` bits, tasks of at most ``longest`` entries."""

    n: int
    bits: int
    windows: int
    longest: int

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

    def groups(self, count: int) -> tuple[tuple[int, int], ...]:
        """First window and number of windows of up to ``count`` groups, highest windows first, sizes falling."""
        count = min(count, self.windows)
        sizes = [(self.windows + k) // count for k in range(count)][::-1]
        ends = [self.windows - sum(sizes[:k]) for k in range(count)]
        return tuple((end - size, size) for end, size in zip(ends, sizes, strict=True))

    @property
    def low_bits(self) -> int:
        """Bits of a bucket's number that the second partition of the sort goes by."""
        return self.buckets_log // 2

    @property
    def segments(self) -> int:
        """Parts of the first partition: windows times values of the high bits."""
        return self.windows << (self.buckets_log - self.low_bits)


def shape(curve: Curve, n: int, bits: int | None = None, longest: int | None = None) -> Shape:
    """The window with the fewest multiplications: 10 an entry, 28 a bucket."""
    order_bits = curve.r.bit_length()

    def windows(c: int) -> int:
        return -(-order_bits // c)

    c = bits or min(range(8, 23), key=lambda k: windows(k) * (10 * n + (28 << (k - 1))))
    average = n >> (c - 1)
    return Shape(n, c, windows(c), longest or min(max(64, 2 * average), 1024))


def group_count(n: int) -> int:
    """In how many groups the windows of an MSM of ``n`` points are summed."""
    return 2 if n < _LONG else 1


def fold_steps(left: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Logarithms of how many sums a thread adds in the next level of rows and of columns."""
    return [min(x, 3 if n >= _MANY else 2) for x, n in zip(left, sizes, strict=True)]


def scratch_bytes(form: Shape, sum_bytes: int, groups: int) -> int:
    """What ``Msm.run`` takes from its allocator, nothing given back in between: the sum over its arrays, each
    aligned."""
    if form.n == 0:
        return aligned_size(sum_bytes)
    return sum(aligned_size(nbytes) for nbytes in _arrays(form, sum_bytes, groups))


def _arrays(form: Shape, sum_bytes: int, groups: int) -> Iterator[int]:
    yield sum_bytes
    yield 4 * form.entries  # digits
    counts = form.segments * -(-form.n // TILE)
    yield from (4 * counts, 4 * (-(-counts // SCAN_TILE) + 1))
    yield from (2 * form.entries, 4 * form.entries, 4 * (form.segments + 1), 4 * (form.segments + 1))
    yield from (4 * form.buckets, 4 * (-(-form.buckets // SCAN_TILE) + 1), 4 * form.buckets, 4 * form.entries)
    for _, count in form.groups(groups):
        part = replace(form, windows=count)
        yield (part.buckets + part.slots) * sum_bytes
        yield 4 * (form.longest + 1 + 4 + LEVELS + 1)
        yield 4 * (4 + LEVELS) * (part.entries // (form.longest + 1) + 1)
        yield 12 * (part.buckets + part.slots)
        yield 16 * LEVELS * (part.slots // 2 + 1)
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
