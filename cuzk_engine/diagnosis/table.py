"""Spans as columns, so that millions of them can be looked through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cuzk_engine.diagnosis.intervals import IntervalSet, normalise
from cuzk_engine.events import Kind, Lane, Span

Mask = npt.NDArray[np.bool_]
_NAMED: Final = ("device", "lane", "kind", "job")


class Names:
    """Strings by number, in the order in which they came. One may serve several tables, which can then be joined."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self.texts: list[str] = []

    def number(self, text: str) -> int:
        """The number of ``text``, a new one where it is new."""
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return found

    def numbers(self, texts: Iterable[str]) -> npt.NDArray[np.int32]:
        """Of each of ``texts``."""
        return np.array([self.number(text) for text in texts], np.int32)

    def find(self, text: str) -> int:
        """The number of ``text``, -1 where no row has it."""
        return self._numbers.get(text, -1)


@dataclass(frozen=True, slots=True)
class SpanTable:
    """Rows sorted by start. ``device``, ``lane``, ``kind``, ``job`` are numbers of ``names``; ``pinned``: 1
    page-locked, 0 pageable, -1 no transfer."""

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    device: npt.NDArray[np.int32]
    lane: npt.NDArray[np.int32]
    kind: npt.NDArray[np.int32]
    job: npt.NDArray[np.int32]
    partition: npt.NDArray[np.int32]
    worker: npt.NDArray[np.int32]
    size: npt.NDArray[np.int64]
    pinned: npt.NDArray[np.int8]
    names: Names

    @classmethod
    def of(cls, spans: Iterable[Span], names: Names | None = None) -> SpanTable:
        names = names or Names()
        rows = list(spans)
        number = names.number
        return cls.from_columns(
            names,
            start=[s.start_ns for s in rows],
            end=[s.end_ns for s in rows],
            device=[number(s.device) for s in rows],
            lane=[number(s.lane) for s in rows],
            kind=[number(s.kind) for s in rows],
            job=[number(s.job) for s in rows],
            partition=[s.partition for s in rows],
            worker=[s.worker for s in rows],
            size=[s.bytes for s in rows],
            pinned=[-1 if s.pinned is None else int(s.pinned) for s in rows],
        )

    @classmethod
    def from_columns(cls, texts: Names, /, **columns: npt.ArrayLike) -> SpanTable:
        """All columns, of one length, in any order of rows. A span that ends before it starts counts as
        one of no length."""
        start = np.asarray(columns["start"], np.int64)
        order = np.argsort(start, kind="stable")
        arrays: dict[str, Any] = {name: np.asarray(columns[name], dtype)[order] for name, dtype in _DTYPES.items()}
        arrays["end"] = np.maximum(arrays["end"], arrays["start"])
        values: list[Any] = [*arrays.values(), texts]
        return cls(*values)

    def __len__(self) -> int:
        return len(self.start)

    def where(self, mask: Mask | npt.NDArray[np.intp]) -> SpanTable:
        values: list[Any] = [getattr(self, name)[mask] for name in _DTYPES] + [self.names]
        return SpanTable(*values)

    def of_device(self, device: str) -> SpanTable:
        return self.where(self.device == self.names.find(device))

    def within(self, start: int, end: int) -> SpanTable:
        """The rows that reach into [start, end)."""
        return self.where((self.start < end) & (self.end > start))

    def in_lane(self, lane: Lane) -> Mask:
        rows: Mask = self.lane == self.names.find(lane)
        return rows

    def of_worker(self, worker: int) -> SpanTable:
        return self.where(self.worker == worker)

    def of_kind(self, *kinds: Kind) -> Mask:
        return np.isin(self.kind, [self.names.find(kind) for kind in kinds])

    def intervals(self, mask: Mask) -> IntervalSet:
        """The union of the rows that ``mask`` chooses."""
        return normalise(self.start[mask], self.end[mask])

    def renamed(self, names: Names) -> SpanTable:
        """The same rows with numbers of ``names``, which gets the texts that are in use only."""
        columns: dict[str, Any] = {}
        for name in _NAMED:
            used, where = np.unique(getattr(self, name), return_inverse=True)
            columns[name] = names.numbers(self.names.texts[number] for number in used.tolist())[where]
        return replace(self, **columns, names=names)

    def devices(self) -> list[str]:
        """Names of the devices that have rows, in the order of their numbers."""
        return [self.names.texts[number] for number in np.unique(self.device).tolist()]

    def text(self, number: int) -> str:
        return self.names.texts[number]


_DTYPES: Final[dict[str, Any]] = {
    "start": np.int64,
    "end": np.int64,
    "device": np.int32,
    "lane": np.int32,
    "kind": np.int32,
    "job": np.int32,
    "partition": np.int32,
    "worker": np.int32,
    "size": np.int64,
    "pinned": np.int8,
}
assert [field.name for field in fields(SpanTable)] == [*_DTYPES, "names"]


def joined(tables: Sequence[SpanTable], names: Names) -> SpanTable:
    """One table of several that share ``names``."""
    return SpanTable.from_columns(
        names, **{name: np.concatenate([getattr(t, name) for t in tables] or [np.empty(0)]) for name in _DTYPES}
    )
