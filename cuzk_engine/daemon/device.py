"""A device process: owns one device, its key cache and its worker threads; started by the supervisor and dies with it.

    python -m cuzk_engine.daemon.device FD DEVICE SUPERVISOR_PID OPTIONS

FD is its end of the socket, OPTIONS a JSON object for the runtime. It opens key and witness files itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import json
import os
import queue
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import compress, repeat
from operator import is_
from typing import Any, Final

from cuzk_engine.client.types import MemoryPlanInfo, PlanChoice
from cuzk_engine.daemon import footprint
from cuzk_engine.daemon.channel import BlockingChannel, Message, encode
from cuzk_engine.daemon.device_log import DeviceLog
from cuzk_engine.daemon.gil import GilWatch
from cuzk_engine.daemon.records import Fault
from cuzk_engine.daemon.reports import Reports
from cuzk_engine.daemon.runtime import DeviceRuntime, Order, make_runtime
from cuzk_engine.devices.base import CancelToken, EventSink
from cuzk_engine.errors import (
    CancelledError,
    CuzkError,
    DeviceFaultError,
    DeviceLostError,
    MemoryPlanError,
    OutOfDeviceMemoryError,
    ProofInvalidError,
)
from cuzk_engine.events import Allocation, Event, EventBatch, Incident, LogLine, Mark, Sample, Span
from cuzk_engine.telemetry.columns import encode_events

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
FLUSH_SECONDS: Final = 0.1
"""How long an event waits, at most."""
_ALIVE_SECONDS: Final = 0.25
_MAX_BUFFERED: Final = 200_000  # events between two flushes
_LINES_SECONDS: Final = 1.0
_GIL_SECONDS: Final = 5.0  # 250 looks, so that a share of 5 % is told with an error of 1.4 percentage points
_CPU_NICENESS: Final = 5
_ROWS: Final[dict[type, str]] = {
    Sample: "samples",
    Mark: "marks",
    Incident: "incidents",
    LogLine: "logs",
}
"""Where a batch has a device process's events, but for the many spans and allocations."""
_PASSING: Final = (OutOfDeviceMemoryError, DeviceFaultError)  # others may use the card just now


class EventBuffer:
    """Collects events from every thread, and sends them in batches. ``add`` takes one, in one step of the interpreter,
    since there are seventy in a partition. Bounded by ``trim``, which is called now and then: what is too much is
    counted as dropped.
    """

    def __init__(self, channel: BlockingChannel) -> None:
        self._channel = channel
        self._sending = threading.Lock()  # batches leave in the order in which they were filled
        self._events: list[Event] = []
        self._dropped = 0
        self._flushed = 0.0
        self.add: EventSink = self._events.append

    def trim(self) -> None:
        """Drops what is too much, the newest, but for allocations, since their sum must stay right."""
        if len(self._events) <= _MAX_BUFFERED:
            return
        with self._sending:
            surplus = self._events[_MAX_BUFFERED:]
            kept = [event for event in surplus if type(event) is Allocation]
            self._events[_MAX_BUFFERED : _MAX_BUFFERED + len(surplus)] = kept
            self._dropped += len(surplus) - len(kept)

    def flush(self, after: float = 0.0) -> float:
        """Sends what there is, unless something was sent less than ``after`` seconds ago. Returns in how many seconds
        it should be asked to again, so that nothing waits for longer. Raises OSError when the supervisor has gone."""
        with self._sending:
            now = time.monotonic()
            due = self._flushed + after
            if now < due:
                return due - now
            frame = self._frame(now)
            if frame:
                self._channel.write(frame)
        return after

    def end(self, message: bytes) -> None:
        """Sends what there is and, behind it, an encoded message. Raises OSError."""
        with self._sending:
            self._channel.write(self._frame(time.monotonic()) + message)

    def _frame(self, now: float) -> bytes:
        """The encoded message of what there is; empty where there is nothing. What is too much for one message, or no
        columns hold, is dropped: a partition's end is told whatever came before it, and the process lives."""
        taken = self._events[:]
        del self._events[: len(taken)]  # others add meanwhile
        if not (taken or self._dropped):
            return b""
        self._flushed = now
        batch = _batch(taken)
        batch.dropped, self._dropped = self._dropped, 0
        try:
            return encode({"type": "events"}, encode_events(batch).SerializeToString())
        except Exception:
            self._dropped = batch.dropped + len(taken)
            return b""


def _batch(events: list[Event]) -> EventBatch:
    """Sorted by kinds, spans and allocations without looking at each."""
    batch, kinds = EventBatch.empty(), list(map(type, events))
    batch.spans.extend(compress(events, map(is_, kinds, repeat(Span))))  # type: ignore[arg-type]
    batch.allocations.extend(compress(events, map(is_, kinds, repeat(Allocation))))  # type: ignore[arg-type]
    if len(batch.spans) + len(batch.allocations) < len(events):
        for event, kind in zip(events, kinds, strict=True):
            if kind in _ROWS:
                getattr(batch, _ROWS[kind]).append(event)
    return batch


class Workers:
    """One thread a worker number, started when it first gets an order. ``lost`` is called when the device is."""

    def __init__(
        self,
        runtime: DeviceRuntime,
        channel: BlockingChannel,
        events: EventBuffer,
        reports: Reports,
        lost: Callable[[str], None],
        watch: GilWatch,
    ) -> None:
        self._runtime = runtime
        self._channel = channel
        self._events = events
        self._reports = reports
        self._lost = lost
        self._watch = watch
        self._lock = threading.Lock()
        self._threads: dict[int, tuple[threading.Thread, queue.SimpleQueue[Order | None]]] = {}
        self._cancels: dict[tuple[str, int], CancelToken] = {}

    def start(self, order: Order) -> None:
        with self._lock:
            self._cancels[order.job, order.partition] = CancelToken()
            self._watch.resume()
            if order.worker not in self._threads:
                orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
                thread = threading.Thread(
                    target=self._serve, args=(orders,), name=f"worker {order.worker}", daemon=True
                )
                self._threads[order.worker] = (thread, orders)
                thread.start()
            self._threads[order.worker][1].put(order)

    def cancel(self, job: str, partition: int) -> None:
        with self._lock:
            token = self._cancels.get((job, partition))
        if token is not None:
            token.set()

    def limit(self, count: int) -> None:
        """Ends the threads of workers from ``count`` on, after what they do."""
        with self._lock:
            surplus = [number for number in self._threads if number >= count]
            ended = [self._threads.pop(number) for number in surplus]
        for _, orders in ended:
            orders.put(None)

    def _serve(self, orders: queue.SimpleQueue[Order | None]) -> None:
        while (order := orders.get()) is not None:
            with self._lock:
                cancel = self._cancels[order.job, order.partition]
            try:
                answer, public = self._prove(order, cancel)
            except DeviceLostError as error:  # no answer: the order ends with the process
                self._lost(str(error))
                return
            self._events.trim()
            with self._lock:
                del self._cancels[order.job, order.partition]
                if not self._cancels:
                    self._watch.pause()
            self._tell(order, answer, public)

    def _tell(self, order: Order, answer: Message, public: bytes) -> None:
        """Whatever the answer is, the supervisor hears that the partition has ended, and before that what it did."""
        done = {"type": "done", "job": order.job, "partition": order.partition}
        try:
            message = encode({**done, **answer}, public)
        except ValueError as error:
            reason = f"the proof and its public signals are too large to be delivered by the engine: {error}"
            message = encode({**done, **_failed(reason)})
        with contextlib.suppress(OSError):  # the supervisor has gone: so will this process
            self._events.end(message)

    def _prove(self, order: Order, cancel: CancelToken) -> tuple[Message, bytes]:
        """What is told of the order, and the public signals of its proof."""
        try:
            with self._reports.of(order) as progress:
                outcome = self._runtime.prove(order, progress, cancel)
        except DeviceLostError:
            raise
        except Exception as error:
            return _ended(error), b""
        answer = {"outcome": "completed", "proof": outcome.proof_json, "phases": outcome.phases}
        return answer, outcome.public


def _ended(error: Exception) -> Message:
    """What is told of an order that ended so."""
    match error:
        case CancelledError():
            return {"outcome": "cancelled"}
        case MemoryPlanError():
            return {**_failed(str(error), Fault.PLAN), "needed": error.requested}
        case OutOfDeviceMemoryError():
            return {**_failed(str(error), Fault.MEMORY), "reduced": getattr(error, "reduced", None)}
        case ProofInvalidError():
            return _failed(str(error), Fault.UNVERIFIED)
        case CuzkError():
            return _failed(str(error))
        case MemoryError():
            return _failed("the machine's memory was exhausted while proving")
        case _:  # a fault of ours must cost this job only
            return _failed(f"internal fault: {_where(error)}")


def _failed(error: str, fault: Fault = Fault.ERROR) -> Message:
    return {"outcome": "failed", "error": error, "fault": fault}


class DeviceProcess:
    """Receives orders until the supervisor ends it or goes away."""

    def __init__(
        self,
        runtime: DeviceRuntime,
        channel: BlockingChannel,
        events: EventBuffer,
        reports: Reports,
        watch: GilWatch,
    ) -> None:
        self._runtime = runtime
        self._channel = channel
        self._events = events
        self._workers = Workers(runtime, channel, events, reports, self._lost, watch)

    def run(self) -> None:
        while (message := self._channel.receive()) is not None:
            match message.pop("type"):
                case "prove":
                    message["key_identity"] = tuple(message["key_identity"])
                    self._workers.start(Order(**message))
                case "cancel":
                    self._workers.cancel(message["job"], message["partition"])
                case "workers":
                    self._workers.limit(message["count"])
                case "end":
                    return
                case "keys":
                    self._answer("keys", message)
                case action:
                    # Loading a key takes long: not in the thread that hears a cancellation.
                    threading.Thread(target=self._answer, args=(action, message), daemon=True).start()

    def _answer(self, action: str, message: Message) -> None:
        reply: Message = {"type": "answer", "call": message["call"]}
        try:
            reply["value"] = self._perform(action, message)
        except DeviceLostError as error:
            self._lost(str(error))
        except CuzkError as error:
            reply["error"] = str(error)
        except Exception as error:
            reply["error"] = f"internal fault: {_where(error)}"
        with contextlib.suppress(OSError):
            self._channel.send(reply)

    def _perform(self, action: str, message: Message) -> Any:
        match action:
            case "load":
                return self._runtime.load_key(message["path"], message["settings"])
            case "evict":
                return self._runtime.evict_key(message["path"])
            case "keys":
                keys = [key._asdict() for key in self._runtime.loaded_keys()]
                return {"keys": keys, "host": self._runtime.host_use()._asdict()}
            case "plan":
                plan = self._runtime.plan(message["path"], message["settings"], message["workers"])
                return {**_fields(plan), "choices": [_fields(choice) for choice in plan.choices]}
        raise CuzkError(f"a device process cannot {action}")

    def _lost(self, reason: str) -> None:
        """Nothing more can run in this process: it says so and ends, and the driver drops the context with it."""
        with contextlib.suppress(OSError):
            self._events.end(encode({"type": "lost", "reason": reason}))
        os._exit(1)


def main(arguments: list[str]) -> int:
    descriptor, device, supervisor, options = arguments
    _protect(int(supervisor))
    footprint.configure_malloc(footprint.DEVICE)
    if device == "cpu":  # all cores for minutes: the window and the supervisor come first where there is no spare one
        os.nice(_CPU_NICENESS)
    channel = BlockingChannel(socket.socket(fileno=int(descriptor)))
    events, reports = EventBuffer(channel), Reports(channel)
    lines = DeviceLog(events.add)
    watch, opened = GilWatch(), threading.Event()
    threading.Thread(
        target=_report_for_ever,
        args=(events, reports, lines, watch, channel, opened),
        name="telemetry",
        daemon=True,
    ).start()
    try:
        runtime = make_runtime(device, json.loads(options), events.add, lambda step: _opening(channel, step))
    except CuzkError as error:
        return _refuse(channel, events, str(error), is_final=not isinstance(error, _PASSING))
    except (MemoryError, OSError) as error:
        return _refuse(channel, events, _where(error), is_final=False)
    except Exception as error:
        return _refuse(channel, events, f"internal fault: {_where(error)}", is_final=True)
    gc.collect()
    gc.freeze()  # what is there now stays: no collection has to go through it again
    channel.send({"type": "ready", "info": asdict(runtime.info)})
    opened.set()
    watch.start()
    DeviceProcess(runtime, channel, events, reports, watch).run()
    # Worker threads may be inside native calls; nothing that they do is wanted any more, and the system gives back
    # all memory.
    os._exit(0)


def _protect(supervisor: int) -> None:
    """No core file (it would hold witnesses), and no life without the supervisor."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.stderr is not None:
        faulthandler.enable()
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # a core_pattern with a pipe ignores the limit
    if os.getppid() != supervisor:  # it died before the signal was asked for
        os._exit(0)


def _report_for_ever(
    events: EventBuffer,
    reports: Reports,
    lines: DeviceLog,
    watch: GilWatch,
    channel: BlockingChannel,
    opened: threading.Event,
) -> None:
    """Says that the process lives, from its start on, and what happens in it once the device is ``opened``."""
    told = looked = said = time.monotonic()
    writes, pause = 0, FLUSH_SECONDS
    while True:
        time.sleep(pause)
        now = time.monotonic()
        try:
            if channel.writes != writes:  # whatever it was, the supervisor has heard of the process
                said, writes = now, channel.writes
            elif now - said >= _ALIVE_SECONDS:
                channel.send({"type": "alive"})
            if not opened.is_set():
                continue
            reports.send()
            pause = events.flush(FLUSH_SECONDS)  # partitions that end send theirs, too
            if now - told >= _LINES_SECONDS:
                told = now
                lines.tick()
            if now - looked >= _GIL_SECONDS:
                looked = now
                samples, held = watch.take()
                if samples:
                    channel.send({"type": "gil", "samples": samples, "held": held})
        except OSError:
            return


def _opening(channel: BlockingChannel, step: str) -> None:
    with contextlib.suppress(OSError):
        channel.send({"type": "opening", "step": step})


def _refuse(channel: BlockingChannel, events: EventBuffer, reason: str, *, is_final: bool) -> int:
    """``is_final``: the next process would say the same."""
    events.flush()
    channel.send({"type": "refused", "reason": reason, "final": is_final})
    return 1


def _fields(value: MemoryPlanInfo | PlanChoice) -> Message:
    """As `asdict`, whose copies of all within nobody needs."""
    return {name: getattr(value, name) for name in value.__slots__}


def _where(error: BaseException) -> str:
    """Kind, text and place of a fault, in one line."""
    trace = error.__traceback__
    place = ""
    while trace is not None:
        place = f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {' '.join(str(error).split())}{place}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
