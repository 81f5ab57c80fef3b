"""A recording opened in the window: read in slices in a thread of its own, taken in between frames."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from PySide6.QtCore import QObject, Signal

from cuzk_engine.client import CuzkError, EngineIdentity, SettingInfo, TelemetryUpdate
from cuzk_gui.models.digest import Digest, Names, digests
from cuzk_gui.models.session import RECORDED, Session

_WAITING: Final = 64
_APPLY_S: Final = 0.012  # of a frame


class Recorded(Protocol):
    """A recording as the engine's client opens it; times are nanoseconds of the recorded engine's clock."""

    @property
    def identity(self) -> EngineIdentity | None: ...
    @property
    def settings(self) -> Sequence[SettingInfo]: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def machine(self) -> str: ...
    def updates(self) -> Iterator[TelemetryUpdate]: ...
    def close(self) -> None: ...


Opener = Callable[[Path], Recorded]


@dataclass(frozen=True, slots=True)
class Header:
    """What a recording says of itself."""

    identity: EngineIdentity | None
    settings: tuple[SettingInfo, ...]
    start_ns: int
    end_ns: int
    machine: str


@dataclass(frozen=True, slots=True)
class _End:
    reason: str


class RecordingFeed(QObject):
    """Fills a session from a file. ``tick`` is called by the window's timer. ``opened``: the header is known;
    ``loaded``: all is there; ``failed``: one line."""

    opened = Signal()
    loaded = Signal()
    failed = Signal(str)

    def __init__(self, path: Path, open_: Opener) -> None:
        super().__init__()
        self.path = path
        self.session = Session(RECORDED)
        self.session.recorded = True
        self.header: Header | None = None
        self.done = False
        self._queue: queue.Queue[Header | Digest | _End] = queue.Queue(_WAITING)
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
        if self.header is None or self.header.end_ns <= self.header.start_ns or not self.session.latest_ns:
            return 0.0
        length = self.header.end_ns - self.header.start_ns
        return min(max((self.session.latest_ns - self.header.start_ns) / length, 0.0), 1.0)

    def now_ns(self) -> int:
        """The end of what has been read: the present of a recording."""
        return self.session.latest_ns

    def tick(self) -> bool:
        """Takes in what has been read, for a part of a frame at most; whether something came."""
        changed = False
        limit = time.monotonic() + _APPLY_S
        while time.monotonic() < limit:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            changed = True
            if isinstance(item, Header):
                self._begin(item)
            elif isinstance(item, _End):
                self.done = True
                (self.failed.emit(item.reason) if item.reason else self.loaded.emit())
            else:
                self._apply(item)
        return changed

    def close(self, timeout_s: float = 1.0) -> bool:
        """Ends the thread; whether it has ended in time."""
        self._closing.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _begin(self, header: Header) -> None:
        self.header = header
        self.session.origin_ns = header.start_ns
        if header.settings:
            self.session.settings.update(header.settings)
        if header.identity is not None:
            self.session.identify(header.identity)
        self.opened.emit()

    def _apply(self, digest: Digest) -> None:
        if self.header is not None and not self.session.latest_ns:
            self.session.begin_stream(max(0, digest.time_ns - self.header.start_ns))
        self.session.apply(digest)

    def _read(self, open_: Opener, names: Names) -> None:
        reason = ""
        try:
            with contextlib.closing(open_(self.path)) as recording:
                self._put(
                    Header(
                        recording.identity,
                        tuple(recording.settings),
                        recording.start_ns,
                        recording.end_ns,
                        recording.machine,
                    )
                )
                for update in recording.updates():
                    for digest in digests(update, names):
                        self._put(digest)
                    if self._closing.is_set():
                        return
        except (CuzkError, OSError) as error:
            reason = str(error) or type(error).__name__
        except Exception as error:  # a fault of ours: said, not lost with the thread
            reason = f"internal error: {type(error).__name__}: {error}"
        self._put(_End(reason))

    def _put(self, item: Header | Digest | _End) -> None:
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
