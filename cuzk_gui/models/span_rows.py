"""Spans of the telemetry stream as rows of the lanes that show them, from columns, without an object for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from cuzk_engine.client import SpanColumns
from cuzk_engine.events import Kind, host_lane
from cuzk_gui.models.columns import Array
from cuzk_gui.models.groups import group_of
from cuzk_gui.models.tracks import SpanRows

if TYPE_CHECKING:
    from cuzk_gui.models.digest import Interner, Names

_INT32: Final = 2**31 - 1
_PINNED: Final = {0: None, 1: False, 2: True}


def rows_by_lane(spans: SpanColumns, part: slice, names: Names) -> Iterator[tuple[tuple[str, str], SpanRows]]:
    """((device, lane), rows) of the spans in ``part``, in the order in which they came."""
    strings, base = spans.strings, len(spans.strings)
    device, lane, kind = (column[part].astype(np.int64) for column in (spans.device, spans.lane, spans.kind))
    worker = np.clip(spans.worker[part], -_INT32, _INT32)
    pinned = np.where((spans.pinned[part] == 0) | (spans.pinned[part] == 1), spans.pinned[part], -1)
    kinds, jobs = _numbers(spans.kind[part], strings, names.kinds), _numbers(spans.job[part], strings, names.jobs)
    # A wait for the lock is the worker's: in the lock's own lane it would lie over whoever holds it.
    waits = np.isin(kind, [i for i, text in enumerate(strings) if text == Kind.LOCK_WAIT]) & (worker >= 0)
    place = lane
    for number in np.unique(worker[waits]).tolist():
        name = host_lane(number)
        place[waits & (worker == number)] = strings.index(name) if name in strings else base + number
    for key in dict.fromkeys(zip(device.tolist(), place.tolist(), strict=True)):
        rows = np.flatnonzero((device == key[0]) & (place == key[1]))
        name = strings[key[1]] if key[1] < base else host_lane(key[1] - base)
        yield (
            (strings[key[0]], name),
            SpanRows(
                start=spans.start[part][rows],
                end=spans.end[part][rows],
                group=_groups(strings, name, kind[rows], worker[rows], pinned[rows]),
                kind=kinds[rows],
                job=jobs[rows],
                partition=np.clip(spans.partition[part][rows], -_INT32, _INT32),
                worker=worker[rows],
                bytes=np.clip(spans.size[part][rows], -(2**63 - 1), 2**63 - 1),
                pinned=pinned[rows].astype(np.int8),
            ),
        )


def _numbers(indexes: Array, strings: tuple[str, ...], names: Interner) -> Array:
    used, where = np.unique(indexes, return_inverse=True)
    return np.array([names.number(strings[i]) for i in used.tolist()], np.int32)[where]


def _groups(strings: tuple[str, ...], lane: str, kind: Array, worker: Array, pinned: Array) -> Array:
    """Looked up once for each kind of transfer and parity of its worker, which is all that matters."""
    odd = (worker % 2 != 0).astype(np.int64)
    used, where = np.unique((kind * 2 + odd) * 3 + pinned + 1, return_inverse=True)
    found = [group_of(strings[code // 6], lane, code // 3 % 2, _PINNED[code % 3]) for code in used.tolist()]
    return np.array(found, np.int8)[where]
