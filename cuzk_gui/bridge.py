"""The one place where other threads meet the window.

Blocking calls run in a few worker threads; the telemetry stream is read in one. Both put what they have into
bounded queues, and
the window takes it out on its own thread, from one timer: no signal crosses threads, and nothing runs a callback
elsewhere.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from cuzk_engine.client import CuzkError
from cuzk_gui.engine import Connection, Engine, UpdateStream
from cuzk_gui.models.digest import Digest, Names, digests

WORKERS: Final = 4
WAITING_CALLS: Final = 256
WAITING_DIGESTS: Final = 256
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Call(Generic[T]):
    work: Callable[[], T]
    done: Callable[[T], None]
    failed: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The telemetry stream is over; ``reason`` is one line, "" when it was asked to end."""

    reason: str


class Workers:
    """A few daemon threads for calls that may block. ``deliver`` runs the answers; call it on the window's thread."""

    def __init__(self, count: int = WORKERS) -> None:
        self._calls: queue.Queue[_Call[Any] | None] = queue.Queue(WAITING_CALLS)
        self._answers: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"window-call-{n}", daemon=True) for n in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def call(self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[str], None]) -> None:
        """Runs ``work`` on a worker thread, then ``done`` with its result or ``failed`` with one line, in
        ``deliver``."""
        if self._closed:
            return
        try:
            self._calls.put_nowait(_Call(work, done, failed))
        except queue.Full:
            self._answers.put(lambda: failed("too many requests are waiting for the engine"))

    def rest(self, seconds: float) -> None:
        """Waits until an answer is there, at most ``seconds``."""
        with contextlib.suppress(queue.Empty):
            self._answers.put(self._answers.get(timeout=seconds))

    def deliver(self) -> None:
        for _ in range(self._answers.qsize()):
            answer = self._answers.get()
            if not self._closed:
                answer()

    def close(self) -> None:
        """Takes no more calls; waiting ones are dropped, running ones come to nothing."""
        self._closed = True
        while True:
            try:
                self._calls.get_nowait()
            except queue.Empty:
                break
        for _ in self._threads:
            self._calls.put(None)

    def join(self, deadline: float) -> bool:
        """Waits until ``deadline`` (monotonic seconds); whether all threads have ended."""
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            self._answers.put(_answer(call))


def _answer(call: _Call[Any]) -> Callable[[], None]:
    try:
        result = call.work()
    except (CuzkError, OSError) as error:
        message = str(error) or type(error).__name__
    except Exception as error:  # a fault of ours: said, not lost with the thread
        message = f"internal error: {type(error).__name__}: {error}"
    else:
        return lambda: call.done(result)
    return lambda: call.failed(message)


class TelemetryReader:
    """Reads one stream in a thread of its own, turned into columns there."""

    def __init__(self, connect: Callable[[], Connection], names: Names, history_ns: int) -> None:
        self._connect = connect
        self._names = names
        self._history_ns = history_ns
        self._queue: queue.Queue[Digest | StreamEnded] = queue.Queue(WAITING_DIGESTS)
        self._stream: UpdateStream | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._read, name="window-telemetry", daemon=True)
        self._thread.start()

    def take(self) -> Digest | StreamEnded | None:
        """The next of what has come."""
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        self._closing.set()
        stream = self._stream
        if stream is not None:
            stream.cancel()

    def join(self, deadline: float) -> bool:
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return not self._thread.is_alive()

    def _read(self) -> None:
        reason = ""
        try:
            self._stream = self._connect().telemetry(history_ns=self._history_ns, columns=True)
            if self._closing.is_set():
                self._stream.cancel()
            for update in self._stream:
                for digest in digests(update, self._names):
                    self._put(digest)
                if self._closing.is_set():
                    break
        except CuzkError as error:
            reason = str(error)
        except Exception as error:  # a fault of ours: the window says it and tries again
            reason = f"internal error in the telemetry stream: {type(error).__name__}: {error}"
        self._put(StreamEnded(reason))

    def _put(self, item: Digest | StreamEnded) -> None:
        while not self._closing.is_set():
            try:
                self._queue.put(item, timeout=0.1)
                return
            except queue.Full:
                continue  # the window is behind: the engine counts what it drops meanwhile


class Bridge:
    """Workers, the connection and the stream of one window."""

    def __init__(self, engine: Engine, names: Names) -> None:
        self.engine = engine
        self._names = names
        self._workers = Workers()
        self._connection: Connection | None = None
        self._connection_address = ""
        self._connection_lock = threading.Lock()
        self._address = ""
        self._reader: TelemetryReader | None = None
        self._old_readers: list[TelemetryReader] = []

    @property
    def streaming(self) -> bool:
        return self._reader is not None

    def call(self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[str], None]) -> None:
        self._workers.call(work, done, failed)

    def ask(self, work: Callable[[Connection], T], done: Callable[[T], None], failed: Callable[[str], None]) -> None:
        """Like ``call`` with the connection to the engine."""
        address = self._address
        self._workers.call(lambda: work(self._connected(address)), done, failed)

    def open_stream(self, address: str, history_ns: int) -> None:
        """Starts reading telemetry from the engine at ``address``."""
        self.close_stream()
        self._address = address
        self._reader = TelemetryReader(lambda: self._connected(address), self._names, history_ns)

    def close_stream(self) -> None:
        self._old_readers = [r for r in self._old_readers if not r.join(time.monotonic())]
        if self._reader is not None:
            self._reader.close()
            self._old_readers.append(self._reader)
            self._reader = None

    def deliver(self) -> None:
        """Runs the answers of calls that have ended."""
        self._workers.deliver()

    def rest(self, seconds: float) -> None:
        """Waits for an answer, at most ``seconds``."""
        self._workers.rest(seconds)

    def take(self) -> Digest | StreamEnded | None:
        """The next of what the stream brought; at its end the reader is gone."""
        found = self._reader.take() if self._reader is not None else None
        if isinstance(found, StreamEnded):
            self.close_stream()
        return found

    def close(self, timeout_s: float = 1.5) -> bool:
        """Ends every thread; whether all ended within ``timeout_s`` (a call that hangs cannot be ended, only left
        behind)."""
        deadline = time.monotonic() + timeout_s
        self._workers.close()
        self.close_stream()
        with self._connection_lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
        ended = self._workers.join(deadline)
        readers = [reader.join(deadline) for reader in self._old_readers]
        return ended and all(readers)

    def _connected(self, address: str) -> Connection:
        with self._connection_lock:
            if self._connection is None or self._connection_address != address:
                if self._connection is not None:
                    self._connection.close()
                self._connection = self.engine.connect(address)
                self._connection_address = address
            return self._connection
