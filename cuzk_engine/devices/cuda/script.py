"""Launches on a GPU, written down once with symbolic addresses, to be replayed many times.

A `Recorder` stands where CuPy would: it hands out memory and takes kernels, waits and events down. It needs no device,
so that what a script does with its memory can be checked anywhere. `replay.py` plays it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from cuzk_engine.devices.cuda.compiler import Program
from cuzk_engine.devices.cuda.shape import aligned_size


@dataclass(frozen=True, slots=True)
class Ref:
    """``nbytes`` bytes of device memory from ``offset`` on of base number ``base``, whose address is known when the
    script is played."""

    base: int
    offset: int
    nbytes: int

    def __getitem__(self, part: slice) -> Ref:
        """A part, by bytes."""
        start, stop, _ = part.indices(self.nbytes)
        return Ref(self.base, self.offset + start, max(0, stop - start))


@dataclass(frozen=True, slots=True)
class Given:
    """A number (uint32) that is known when the script is played, at the place of base number ``base``."""

    base: int


Word: TypeAlias = np.uint32 | np.uint64 | np.int32
Argument: TypeAlias = Ref | Given | Word


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel of ``program`` on a stream; ``shared``: bytes of dynamic shared memory."""

    stream: int
    program: Program
    name: str
    grid: tuple[int, int, int]
    block: int
    shared: int
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Record:
    stream: int
    event: int


@dataclass(frozen=True, slots=True)
class Wait:
    stream: int
    event: int


@dataclass(frozen=True, slots=True)
class Zero:
    stream: int
    target: Ref


@dataclass(frozen=True, slots=True)
class Copy:
    stream: int
    target: Ref
    source: Ref


Operation: TypeAlias = Launch | Record | Wait | Zero | Copy


@dataclass(frozen=True, eq=False, slots=True)
class Script:
    """``scratch_bytes``: of the block that it works in. ``marks``: names of the phases at whose ends events are that
    can be timed; their events come first, then ``inner`` ones that only order streams."""

    operations: tuple[Operation, ...]
    scratch_bytes: int
    marks: tuple[str, ...]
    inner: int


class Region:
    """A part of the block, handed out front to back; what is taken from it stays until it starts ``again``."""

    def __init__(self, base: int, start: int, nbytes: int) -> None:
        self._base, self._start, self.nbytes = base, start, nbytes
        self.used = self.most = 0

    def take(self, nbytes: int) -> Ref:
        """Raises MemoryError where the plan that the region was made by is too small."""
        found = Ref(self._base, self._start + self.used, nbytes)
        self.used += aligned_size(nbytes)
        self.most = max(self.most, self.used)
        if self.used > self.nbytes:
            raise MemoryError(f"an operation takes {self.used} bytes of a part of its block, its plan is {self.nbytes}")
        return found

    def again(self) -> None:
        self.used = 0


class Recorder:
    """``base``: the number of the block's address. What is recorded goes to the stream of the innermost ``on``, memory
    comes from the region of the innermost ``using``."""

    def __init__(self, base: int) -> None:
        self._base = base
        self._size = 0
        self._operations: list[Operation] = []
        self._marks: list[str] = []
        self._inner = 0
        self._streams: list[int] = []
        self._regions: list[Region] = []

    def script(self) -> Script:
        """What was recorded. Events of marks have the first numbers, the others the next ones."""
        first = len(self._marks)
        numbered = [_numbered(operation, first) for operation in self._operations]
        return Script(tuple(numbered), self._size, tuple(self._marks), self._inner)

    # ---- memory ----

    def region(self, nbytes: int) -> Region:
        """The next part of the block."""
        found = Region(self._base, self._size, aligned_size(nbytes))
        self._size += found.nbytes
        return found

    def block(self, nbytes: int) -> Ref:
        """The same for one array that stays to the end."""
        return self.region(nbytes).take(nbytes)

    @contextmanager
    def using(self, region: Region) -> Iterator[None]:
        self._regions.append(region)
        try:
            yield
        finally:
            self._regions.pop()

    def empty(self, nbytes: int) -> Ref:
        return self._regions[-1].take(nbytes)

    def zeros(self, nbytes: int) -> Ref:
        found = self.empty(nbytes)
        if nbytes:
            self._add(Zero(self._stream, found))
        return found

    # ---- work ----

    @contextmanager
    def on(self, stream: int) -> Iterator[None]:
        self._streams.append(stream)
        try:
            yield
        finally:
            self._streams.pop()

    def launch(
        self,
        program: Program,
        name: str,
        grid: int | tuple[int, ...],
        block: int,
        arguments: Sequence[Argument],
        shared: int = 0,
    ) -> None:
        sizes = (grid,) if isinstance(grid, int) else grid
        x, y, z = (*sizes, 1, 1)[:3]
        if min(x, y, z, block) < 1:
            raise ValueError(f"{name}: a grid of {sizes}, blocks of {block}")
        self._add(Launch(self._stream, program, name, (x, y, z), block, shared, tuple(arguments)))

    def copy(self, source: Ref) -> Ref:
        """A copy in memory of its own."""
        target = self.empty(source.nbytes)
        self._add(Copy(self._stream, target, source))
        return target

    # ---- order ----

    def mark(self, phase: str) -> int:
        """The event at the end of a phase, which can be timed."""
        self._marks.append(phase)
        return self._record(len(self._marks) - 1)

    def record(self) -> int:
        """An event to wait for."""
        self._inner += 1
        return self._record(-self._inner)

    def wait(self, event: int) -> None:
        self._add(Wait(self._stream, event))

    def _record(self, event: int) -> int:
        self._add(Record(self._stream, event))
        return event

    @property
    def _stream(self) -> int:
        return self._streams[-1]

    def _add(self, operation: Operation) -> None:
        self._operations.append(operation)


def _numbered(operation: Operation, first: int) -> Operation:
    """Inner events, negative while they are recorded, after the ``first`` ones."""
    if isinstance(operation, (Record, Wait)) and operation.event < 0:
        return type(operation)(operation.stream, first - 1 - operation.event)
    return operation
