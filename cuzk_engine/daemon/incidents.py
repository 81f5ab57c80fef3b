"""The last incidents, each with its picture and the events of its last seconds in a file of its own, so that it can be
looked at when the telemetry of that time is gone.

A file is one JSON object: the incident, the wall clock's time of it, and the events as one table a kind (``fields``,
``rows``). The newest files are kept; of many incidents of one kind in a moment the first one gets a file.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, fields
from pathlib import Path
from typing import Any, Final

from cuzk_engine.errors import CuzkError
from cuzk_engine.events import Holding, Incident, OtherProcess, Picture, Remedy
from cuzk_engine.formats.atomic import write_atomically
from cuzk_engine.paths import ensure_private
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.telemetry.columns import decode_events
from cuzk_engine.telemetry.hub import Hub
from cuzk_engine.telemetry.rows import incident_to_wire

log = logging.getLogger("cuzk")

KEPT: Final = 100
SECONDS: Final = 10.0
_ROWS: Final = 5_000  # of one kind; the newest
_APART_NS: Final = 10**9
_NAME: Final = re.compile(r"[0-9]{1,20}-[a-z0-9]+-[a-z-]+\.json", re.ASCII)
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Incidents:
    """``note`` is for the event loop; ``write`` is slow and may run in a thread."""

    def __init__(self, folder: Path, kept: int = KEPT) -> None:
        self.folder = folder
        self._kept = kept
        self._recent: deque[tuple[Incident, int]] = deque(maxlen=kept)  # with when it was told
        self._written: dict[tuple[str, str], int] = {}

    @property
    def recent(self) -> Sequence[Incident]:
        """Oldest first, those of earlier daemons included: times of another boot mean nothing and are left out."""
        return tuple(incident for incident, _ in self._recent)

    def told_before(self, time_ns: int | None) -> list[Incident]:
        """Those of ``recent`` that readers were told of before then; None: all."""
        return [incident for incident, told_ns in self._recent if time_ns is None or told_ns < time_ns]

    def load(self) -> None:
        """Reads what is in the folder; a file that is none of ours is left alone."""
        boot = _boot_id()
        for path in self._files():
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                document = json.loads(path.read_text(encoding="utf-8"))
                if document["boot"] == boot:
                    incident = incident_from(document["incident"])
                    incident_to_wire(incident)  # what readers of the telemetry would be sent
                    self._recent.append((incident, -1))

    def note(self, incident: Incident, told_ns: int) -> bool:
        """Keeps an incident; True when it is to be written. ``told_ns``: when the batch was sent that told of it."""
        self._recent.append((incident, told_ns))
        key = incident.device, incident.kind
        last = self._written.get(key)
        if last is not None and incident.time_ns - last < _APART_NS:
            return False
        self._written[key] = incident.time_ns
        return True

    def knows(self, device: str, kind: str, since_ns: int) -> bool:
        return any(one.device == device and one.kind == kind and one.time_ns >= since_ns for one in self.recent)

    def write(self, incident: Incident, past: Iterable[pb.TelemetryBatch]) -> None:
        """``past``: the batches of the time before it. A disk that is full costs the file only."""
        wall_ns = time.time_ns() - (time.monotonic_ns() - incident.time_ns)
        document = {
            "version": 1,
            "boot": _boot_id(),
            "wall_ns": wall_ns,
            "incident": asdict(incident),
            "events": _tables(past, since_of(incident), incident.time_ns),
        }
        name = f"{wall_ns}-{incident.device.replace(':', '')}-{incident.kind}.json"
        try:
            ensure_private(self.folder)
            text = json.dumps(document, separators=(",", ":"))
            write_atomically(self.folder / name, text, mode=0o600)
            for old in self._files()[: -self._kept]:
                old.unlink(missing_ok=True)
        except (CuzkError, OSError) as error:
            log.warning("the incident cannot be kept: %s", error)

    def _files(self) -> list[Path]:
        """Oldest first."""
        try:
            found = [path for path in self.folder.iterdir() if _NAME.fullmatch(path.name) and path.is_file()]
        except OSError:
            return []
        return sorted(found, key=lambda path: (int(path.name.partition("-")[0]), path.name))


def since_of(incident: Incident) -> int:
    """From when on events belong to it."""
    since = incident.picture.since_ns if incident.picture is not None else 0
    return since or incident.time_ns - round(SECONDS * 1e9)


def last_picture(hub: Hub, device: str, capacity: int, settings: Mapping[str, str], now_ns: int) -> Picture:
    """Of a process that cannot say any more who held what: as its allocations had added up."""
    held, host = hub.by_purpose(device), hub.by_purpose("host")
    return Picture(
        capacity=capacity,
        free=max(0, capacity - sum(held.values())),
        holdings=tuple(Holding(purpose, -1, "", nbytes) for purpose, nbytes in held.items()),
        host=tuple(Holding(purpose, -1, "", nbytes) for purpose, nbytes in host.items()),
        settings=tuple(settings.items()),
        since_ns=now_ns - round(SECONDS * 1e9),
    )


def incident_from(document: dict[str, Any]) -> Incident:
    """From the form that ``asdict`` and JSON make of one. Raises KeyError, TypeError."""
    values = dict(document)
    picture = values.get("picture")
    if picture is not None:
        picture = {item.name: picture[item.name] for item in fields(Picture)}
        for name, kind in (("holdings", Holding), ("host", Holding), ("others", OtherProcess), ("remedies", Remedy)):
            picture[name] = tuple(kind(**entry) for entry in picture[name])
        picture["settings"] = tuple((str(key), str(value)) for key, value in picture["settings"])
        values["picture"] = Picture(**picture)
    return Incident(**values)


def _tables(past: Iterable[pb.TelemetryBatch], since_ns: int, until_ns: int) -> dict[str, Any]:
    kinds: dict[str, list[Any]] = {"spans": [], "allocations": [], "samples": [], "marks": []}
    for batch in past:
        events = decode_events(batch)
        kinds["spans"] += (span for span in events.spans if span.end_ns >= since_ns and span.start_ns <= until_ns)
        for name in ("allocations", "samples", "marks"):
            kinds[name] += (event for event in getattr(events, name) if since_ns <= event.time_ns <= until_ns)
    return {"since_ns": since_ns, **{name: _table(rows) for name, rows in kinds.items() if rows}}


def _table(events: Sequence[Any]) -> dict[str, Any]:
    """Of events of one kind, which are dataclasses or, where they are many, named tuples."""
    newest = events[-_ROWS:]
    is_plain = isinstance(newest[0], tuple)
    return {
        "fields": list(newest[0]._fields) if is_plain else [item.name for item in fields(newest[0])],
        "rows": list(newest) if is_plain else [astuple(event) for event in newest],
        "left_out": len(events) - len(newest),
    }


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
