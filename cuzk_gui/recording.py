"""A recording opened in the window: read in slices in a thread of its own, taken in between frames. Gaps and findings
are those of all of it, as ``cuzk diagnose`` finds them."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from PySide6.QtCore import QObject, Signal

from cuzk_engine.client import CuzkError, TelemetryUpdate
from cuzk_engine.events import EventBatch
from cuzk_gui.models.digest import Digest, Names, digests
from cuzk_gui.models.session import RECORDED, Session

if TYPE_CHECKING:
    from cuzk_engine.client.recording import RecordingInfo

_SLICE: Final = 400  # events taken in at once
_WAITING: Final = 64
_APPLY_S: Final = 0.004  # of a quarter of a frame


class Recorded(Protocol):
    """A recording as the engine's client opens it."""

    @property
    def info(self) -> RecordingInfo: ...
    @property
    def damage(self) -> str | None: ...
    def updates(self, *, columns: bool = False) -> Iterator[TelemetryUpdate]: ...
    def diagnosis(self) -> EventBatch: ...
    def close(self) -> None: ...


Opener = Callable[[Path], Recorded]


@dataclass(frozen=True, slots=True)
class _End:
    """``reason``: why nothing can be shown; ``damage``: from where on the file could not be read."""

    reason: str = ""
    damage: str = ""


class RecordingFeed(QObject):
    """Fills a session from a file. ``tick`` is called by the window's timer. ``opened``: it is known what the file
    says of itself; ``loaded``: all is there; ``damaged``, ``failed``: one line."""

    opened = Signal()
    loaded = Signal()
    damaged = Signal(str)
    failed = Signal(str)

    def __init__(self, path: Path, open_: Opener) -> None:
        super().__init__()
        self.path = path
        self.session = Session(RECORDED)
        self.session.recorded = self.session.reading = True
        self.info: RecordingInfo | None = None
        self.done = False
        self._queue: queue.Queue[RecordingInfo | Digest | _End] = queue.Queue(_WAITING)
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._read, args=(open_, self.session.names), name="window-recording", daemon=True
        )
        self._thread.start()

    @property
    def progress(self) -> float:
        """Share of the recorded time that has been read."""
        if self.done:
            return 1.0
        if self.info is None or self.info.end_ns <= self.info.start_ns or not self.session.latest_ns:
            return 0.0
        length = self.info.end_ns - self.info.start_ns
        return min(max((self.session.latest_ns - self.info.start_ns) / length, 0.0), 1.0)

    def now_ns(self) -> int:
        """The end of what has been read: the present of a recording."""
        return self.session.latest_ns

    def tick(self) -> bool:
        """Takes in some of what has been read; whether something came."""
        changed = False
        limit = time.monotonic() + _APPLY_S
        while time.monotonic() < limit:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            changed = True
            if isinstance(item, Digest):
                self._apply(item)
            elif isinstance(item, _End):
                self._end(item)
            else:
                self._begin(item)
        return changed

    def stop(self) -> None:
        """The thread shall end; it does after what it is reading."""
        self._closing.set()

    def close(self, timeout_s: float = 1.0) -> bool:
        """Ends the thread; whether it has ended in time."""
        self.stop()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _begin(self, info: RecordingInfo) -> None:
        self.info = info
        self.session.origin_ns = info.start_ns
        self.session.wall_offset_ns = info.wall_offset_ns
        self.session.settings.update(info.settings)
        if info.identity.build:
            self.session.identify(info.identity)
        self.opened.emit()

    def _end(self, end: _End) -> None:
        self.done = True
        self.session.reading = False
        self.session.version += 1
        if end.reason:
            self.failed.emit(end.reason)
            return
        self.loaded.emit()
        if end.damage:
            self.damaged.emit(end.damage)

    def _apply(self, digest: Digest) -> None:
        if self.info is not None and not self.session.latest_ns:
            self.session.begin_stream(max(0, digest.time_ns - self.info.start_ns))
        self.session.apply(digest)

    def _read(self, open_: Opener, names: Names) -> None:
        last: TelemetryUpdate | None = None
        try:
            with contextlib.closing(open_(self.path)) as recording:
                self._put(recording.info)
                for update in recording.updates(columns=True):
                    told = replace(update.events, gaps=[], findings=[])  # while it ran, of the last minute each
                    self._put_slices(replace(update, events=told), names)
                    last = update
                    if self._closing.is_set():
                        return
                end = _End(damage=recording.damage or "")
                if last is not None:
                    found = TelemetryUpdate(last.time_ns, last.wall_ns, recording.diagnosis(), [], None, None, None)
                    self._put_slices(found, names)
        except (CuzkError, OSError) as error:
            end = _End(str(error) or type(error).__name__)
        except Exception as error:  # a fault of ours: said, not lost with the thread
            end = _End(f"internal error: {type(error).__name__}: {error}")
        self._put(end)

    def _put_slices(self, update: TelemetryUpdate, names: Names) -> None:
        for digest in digests(update, names, _SLICE):
            self._put(digest)

    def _put(self, item: RecordingInfo | Digest | _End) -> None:
        while not self._closing.is_set():
            try:
                self._queue.put(item, timeout=0.1)
                return
            except queue.Full:
                continue  # the window takes it between frames


def open_recording(path: Path) -> Recorded:
    """Opens a file of `cuzk record`. Raises CuzkError when it is none."""
    from cuzk_engine.client.recording import Recording

    return Recording.open(path)
