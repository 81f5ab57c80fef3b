"""A recording as the telemetry stream that it was: the window and the diagnosis read it like a running engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cuzk_engine.client.convert import identity_from_wire, setting_from_wire, update_from_wire
from cuzk_engine.client.types import EngineIdentity, SettingInfo, TelemetryUpdate
from cuzk_engine.errors import FormatError
from cuzk_engine.events import EventBatch
from cuzk_engine.recording.reader import RecordingReader


@dataclass(frozen=True, slots=True)
class RecordingInfo:
    """``start_ns``, ``end_ns``: of what is still there, on the recorded engine's clock; ``wall_offset_ns``: the wall
    clock minus that clock. ``lost``: events that did not reach the file; ``dropped_until_ns``: up to when only coarse
    levels are left, because of the size limit, else None. Of a file that was cut, ``events`` and ``end_ns`` are of what
    can be read."""

    path: str
    identity: EngineIdentity
    settings: tuple[SettingInfo, ...]
    address: str
    start_ns: int
    end_ns: int
    wall_offset_ns: int
    events: int
    lost: int
    dropped_until_ns: int | None


class Recording:
    """Open with ``Recording.open``; one thread at a time. Raises FormatError, in one line."""

    def __init__(self, reader: RecordingReader, info: RecordingInfo) -> None:
        self._reader = reader
        self.info = info

    @classmethod
    def open(cls, path: Path | str) -> Recording:
        """Reads what the file says of itself, not yet what it holds. One with nothing that can be read is refused."""
        reader = RecordingReader(path)
        try:
            return cls(reader, _info(reader))
        except BaseException:
            reader.close()
            raise

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._reader.close()

    @property
    def reader(self) -> RecordingReader:
        return self._reader

    @property
    def damage(self) -> str | None:
        """After reading: one sentence that says from where on the file could not be read, None where all could."""
        return self._reader.damage

    def look_through(self) -> None:
        """Lets ``damage`` be known without reading all: finds what was cut or overwritten, not a wrong byte."""
        self._reader.readable()

    def updates(
        self, start_ns: int | None = None, end_ns: int | None = None, *, columns: bool = False
    ) -> Iterator[TelemetryUpdate]:
        """As from ``EngineClient.telemetry``: the first one has identity, settings and memory and the time of the
        recording's start; then about two seconds each, in order."""
        for batch in self._reader.batches(start_ns, end_ns):
            try:
                update = update_from_wire(batch, columns=columns)
            except ValueError as error:
                self._reader.damage = f"{self._reader.path}: cannot be read in part: {error}"
                return
            yield update

    def diagnosis(self) -> EventBatch:
        """Gaps and findings of all that was recorded, as ``cuzk diagnose`` has them; what the engine told meanwhile is
        of other stretches. Reads the file once more. Raises FormatError."""
        from cuzk_engine.recording.contents import Contents

        contents, found = Contents.load(self), EventBatch.empty()
        for summary in map(contents.summary, contents.devices):
            found.gaps += summary.idleness.gaps
            found.findings += summary.findings
        return found


def _info(reader: RecordingReader) -> RecordingInfo:
    first = next(iter(reader.batches()), None)
    if first is None:
        raise FormatError(reader.path, _why_nothing(reader))
    start, number = first.time_ns, reader.number
    events, end = number("events") or 0, number("last_ns")
    if reader.is_cut or end is None:
        events, end = reader.readable()
    begin = number("dropped_until_ns") or number("first_ns")
    return RecordingInfo(
        path=str(reader.path),
        identity=identity_from_wire(reader.identity),
        settings=tuple(map(setting_from_wire, reader.settings)),
        address=reader.address,
        start_ns=start if begin is None else begin,
        end_ns=end or start,
        wall_offset_ns=first.wall_ns - first.time_ns,
        events=events,
        lost=number("lost") or 0,
        dropped_until_ns=number("dropped_until_ns"),
    )


def _why_nothing(reader: RecordingReader) -> str:
    if reader.damage:
        return f"is damaged: nothing in it can be read ({reader.damage.removeprefix(f'{reader.path}: ')})"
    return "holds nothing; a recording does about two seconds after it began"
