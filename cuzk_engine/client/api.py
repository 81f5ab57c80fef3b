"""A client of a running engine: synchronous, thread-safe, plain types in and out.

Every call may raise DaemonError (no engine there, or not one of ours) or CuzkError (the engine refused, in one line).
``grpc`` is imported when the first client is made, so that importing this package costs little.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from cuzk_engine.client.address import Address, parse_address
from cuzk_engine.client.types import (
    DEFAULT_ADDRESS,
    REFUSED,
    CircuitInfo,
    EngineIdentity,
    JobInfo,
    MemoryPlanInfo,
    Priority,
    ProofResult,
    SettingChange,
    SettingInfo,
    TelemetryUpdate,
)
from cuzk_engine.errors import CuzkError, DaemonError
from cuzk_engine.paths import is_utf8

if TYPE_CHECKING:
    import grpc

    from cuzk_engine.proto import engine_v1_pb2 as pb

MAX_MESSAGE: Final = 256 << 20
_CALL_TIMEOUT: Final = 15.0  # seconds, for calls that look at memory only
_FILE_TIMEOUT: Final = 3600.0  # for calls that read a whole key file once
_CLOSE_TIME: Final = 1.0
_CHUNK: Final = 1 << 20

T = TypeVar("T")


class EngineClient:
    """A connection to the engine at ``address``; made without waiting, so a wrong address shows at the first call.

    ``certificate`` (PEM) turns TLS on, ``token`` is sent with every call: a remote engine asks for both. Raises
    DaemonError for what cannot be one.
    """

    def __init__(
        self, address: str = DEFAULT_ADDRESS, *, certificate: bytes | None = None, token: str | None = None
    ) -> None:
        import grpc
        from grpc_health.v1 import health_pb2_grpc

        from cuzk_engine.client.tls import check_access, name_to_verify
        from cuzk_engine.proto import engine_v1_pb2_grpc as rpc

        parsed = parse_address(address)
        check_access(certificate, token)
        self._address: Final[Address] = parsed
        self._metadata: Final = (("authorization", f"Bearer {token}"),) if token else ()
        options = [
            ("grpc.max_receive_message_length", MAX_MESSAGE),
            ("grpc.max_send_message_length", MAX_MESSAGE),
            # An engine that was just started again must be found at once, not after a backoff of minutes.
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 1000),
            ("grpc.max_reconnect_backoff_ms", 1000),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_http_proxy", 0),
        ]
        name = name_to_verify(certificate, parsed.dialled) if certificate else None
        if name is not None:
            options.append(("grpc.ssl_target_name_override", name))  # type: ignore[arg-type]
        if parsed.path:
            options.append(("grpc.default_authority", "localhost"))  # type: ignore[arg-type]
        self._channel: Final[grpc.Channel] = (
            grpc.secure_channel(parsed.dialled.target, grpc.ssl_channel_credentials(certificate), options)
            if certificate
            else grpc.insecure_channel(parsed.dialled.target, options)
        )
        self._circuits: Final = rpc.CircuitsStub(self._channel)
        self._jobs: Final = rpc.JobsStub(self._channel)
        self._telemetry: Final = rpc.TelemetryStub(self._channel)
        self._control: Final = rpc.ControlStub(self._channel)
        health: Any = health_pb2_grpc.HealthStub(self._channel)
        self._check_health: Final = health.Check

    def __enter__(self) -> EngineClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None or issubclass(kind, Exception):
            self.close()
            return
        # gRPC, interrupted between a call's start and that of the thread that serves it, would wait for it for ever.
        thread = threading.Thread(target=self.close, name="closing", daemon=True)
        thread.start()
        thread.join(_CLOSE_TIME)

    @property
    def address(self) -> str:
        return str(self._address)

    def close(self) -> None:
        """Ends the connection and every stream; may be called twice."""
        self._channel.close()

    # ---- control ----

    def is_healthy(self, timeout: float = 2.0) -> bool:
        """Whether the standard health service says SERVING."""
        from grpc_health.v1 import health_pb2

        answer = self._call(self._check_health, health_pb2.HealthCheckRequest(), timeout)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def identify(self, timeout: float = 5.0) -> EngineIdentity:
        from cuzk_engine.client.convert import identity_from_wire
        from cuzk_engine.proto import engine_v1_pb2 as pb

        return identity_from_wire(self._call(self._control.Identify, pb.IdentifyRequest(), timeout))

    def settings(self) -> list[SettingInfo]:
        from cuzk_engine.proto import engine_v1_pb2 as pb

        return _settings(self._call(self._control.GetSettings, pb.GetSettingsRequest()))

    def apply_settings(self, changes: Iterable[SettingChange]) -> list[SettingInfo]:
        """All or nothing; returns all settings as they are now. A setting that is unknown, fixed or wrong raises
        CuzkError.
        """
        from cuzk_engine.proto import engine_v1_pb2 as pb

        request = pb.ApplySettingsRequest(changes=map(_change, changes))
        return _settings(self._call(self._control.ApplySettings, request))

    def plan(
        self,
        *,
        key_path: str | Path = "",
        circuit_id: str = "",
        device: str = "",
        settings: Iterable[SettingChange] = (),
        workers: int = 0,
    ) -> MemoryPlanInfo:
        """What proofs with this key need on ``device``, as if ``settings`` were set and it had ``workers`` (0: as it
        has). Nothing is changed or allocated, and no file is read beyond its header."""
        from cuzk_engine.client.convert import plan_from_wire
        from cuzk_engine.proto import engine_v1_pb2 as pb

        request = pb.PlanRequest(
            key_path=_absolute(key_path),
            circuit_id=_text("circuit", circuit_id),
            device=_text("device", device),
            settings=map(_change, settings),
            workers=workers,
        )
        return plan_from_wire(self._call(self._control.Plan, request, _FILE_TIMEOUT))

    def drain(self, timeout: float | None = None) -> bool:
        """No new jobs from now on; True when nothing runs any more, False when ``timeout`` seconds passed first."""
        from cuzk_engine.proto import engine_v1_pb2 as pb

        request = pb.DrainRequest(timeout_ms=0 if timeout is None else max(1, round(timeout * 1000)))
        limit = None if timeout is None else timeout + _CALL_TIMEOUT
        return bool(self._call(self._control.Drain, request, limit).drained)

    def shutdown(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Asks the daemon to end, after what runs (at most ``timeout`` seconds) or at once; returns when it has
        agreed.
        """
        from cuzk_engine.proto import engine_v1_pb2 as pb

        request = pb.ShutdownRequest(drain=drain, timeout_ms=0 if timeout is None else max(1, round(timeout * 1000)))
        self._call(self._control.Shutdown, request)

    # ---- circuits ----

    def register_circuit(self, path: str | Path, name: str = "") -> CircuitInfo:
        from cuzk_engine.client.convert import circuit_from_wire
        from cuzk_engine.proto import engine_v1_pb2 as pb

        request = pb.RegisterCircuitRequest(key_path=_absolute(path), name=_text("name", name))
        return circuit_from_wire(self._call(self._circuits.Register, request, _FILE_TIMEOUT))

    def circuits(self) -> list[CircuitInfo]:
        from cuzk_engine.client.convert import circuit_from_wire
        from cuzk_engine.proto import engine_v1_pb2 as pb

        return [circuit_from_wire(c) for c in self._call(self._circuits.List, pb.ListCircuitsRequest()).circuits]

    def remove_circuit(self, circuit_id: str) -> None:
        """Forgets the circuit; its file stays."""
        from cuzk_engine.proto import engine_v1_pb2 as pb

        self._call(self._circuits.Remove, pb.RemoveCircuitRequest(id=_text("circuit", circuit_id)))

    # ---- jobs ----

    def submit(
        self,
        *,
        key_path: str | Path = "",
        circuit_id: str = "",
        witness_path: str | Path,
        more_witnesses: Iterable[str | Path] = (),
        priority: Priority = Priority.NORMAL,
        request_id: str = "",
        device: str = "",
        label: str = "",
    ) -> JobInfo:
        """Hands in a witness by its path; the engine must be allowed to read it. ``more_witnesses`` of the same
        circuit make further partitions of the same job: one proof each, delivered in this order.

        One ``request_id`` gives one job, however often it is sent.
        """
        from cuzk_engine.client.convert import job_from_wire

        request = _submit_request(key_path, circuit_id, priority, request_id, device, label)
        request.witness_path = _absolute(witness_path)
        request.more_witness_paths.extend(map(_absolute, more_witnesses))
        return job_from_wire(self._call(self._jobs.Submit, request, _FILE_TIMEOUT))

    def submit_stream(
        self,
        data: bytes | Iterable[bytes],
        *,
        key_path: str | Path = "",
        circuit_id: str = "",
        priority: Priority = Priority.NORMAL,
        request_id: str = "",
        device: str = "",
        label: str = "",
    ) -> JobInfo:
        """Like ``submit``, with the .wtns file's bytes instead of its path. What reading ``data`` raises is raised."""
        from cuzk_engine.client.convert import job_from_wire
        from cuzk_engine.proto import engine_v1_pb2 as pb

        request = _submit_request(key_path, circuit_id, priority, request_id, device, label)

        faults: list[Exception] = []

        def chunks() -> Iterator[pb.SubmitChunk]:  # in a thread of gRPC's, to which a fault means nothing
            yield pb.SubmitChunk(request=request)
            try:
                for part in (data,) if isinstance(data, bytes) else data:
                    for start in range(0, len(part), _CHUNK):
                        yield pb.SubmitChunk(data=part[start : start + _CHUNK])
            except Exception as error:
                faults.append(error)
                yield pb.SubmitChunk()  # refused: what came so far must not be taken for the whole

        try:
            return job_from_wire(self._call(self._jobs.SubmitStream, chunks(), _FILE_TIMEOUT))
        except CuzkError:
            if faults:
                raise faults[0] from None
            raise

    def job(self, job_id: str) -> JobInfo:
        """By its id, or by its request's."""
        from cuzk_engine.client.convert import job_from_wire

        return job_from_wire(self._call(self._jobs.Get, _job_request(job_id)))

    def jobs(self, limit: int = 0) -> list[JobInfo]:
        """Newest first; ``limit`` 0 means the engine's own (1000)."""
        from cuzk_engine.client.convert import job_from_wire
        from cuzk_engine.proto import engine_v1_pb2 as pb

        return [job_from_wire(job) for job in self._call(self._jobs.List, pb.ListJobsRequest(limit=limit)).jobs]

    def watch(self, job_id: str) -> ClientStream[JobInfo]:
        """The job now and after each change; ends after its last state."""
        from cuzk_engine.client.convert import job_from_wire

        call = self._jobs.Watch(_job_request(job_id), metadata=self._metadata)
        return ClientStream(call, job_from_wire, self._address)

    def fetch(self, job_id: str) -> ProofResult:
        """The proofs of a completed job, one a partition; CuzkError with its state for any other."""
        curve, pairs = "", []
        for curve, texts in self._pages(job_id):  # noqa: B007 - it is the same in all of them
            pairs += texts
        return ProofResult(*pairs[0], curve, tuple(pairs) if len(pairs) > 1 else ())

    def fetch_each(self, job_id: str) -> Iterator[tuple[str, str]]:
        """Like ``fetch``: proof.json and public.json of one partition after the other, where all of them together
        would take much memory."""
        for _, pairs in self._pages(job_id):
            yield from pairs

    def _pages(self, job_id: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """The curve, and what each partition of a page has. No message could hold every result."""
        from cuzk_engine.client.convert import proofs_from_wire
        from cuzk_engine.proto import engine_v1_pb2 as pb

        request = pb.FetchRequest(id=_text("job", job_id), first=0)
        while True:
            answer = self._call(self._jobs.Fetch, request)
            yield answer.curve, proofs_from_wire(answer)
            if not answer.next:
                return
            request.first = answer.next

    def cancel(self, job_id: str) -> bool:
        """True when the job was running (it stops soon), False when it was waiting or had ended."""

        return bool(self._call(self._jobs.Cancel, _job_request(job_id)).was_running)

    # ---- telemetry ----

    def telemetry(self, history_ns: int = 0, *, columns: bool = False) -> ClientStream[TelemetryUpdate]:
        """What happens from now on, after ``history_ns`` of the past; ``cancel()`` ends it from any thread.
        ``columns``: with spans as columns."""
        from cuzk_engine.client.convert import update_from_wire
        from cuzk_engine.proto import engine_v1_pb2 as pb

        call = self._telemetry.Stream(pb.TelemetryRequest(history_ns=history_ns), metadata=self._metadata)
        return ClientStream(call, partial(update_from_wire, columns=columns), self._address)

    def telemetry_batches(self, history_ns: int = 0) -> ClientStream[pb.TelemetryBatch]:
        """The same as it comes, in columns: for a recording."""
        from cuzk_engine.proto import engine_v1_pb2 as pb

        call = self._telemetry.Stream(pb.TelemetryRequest(history_ns=history_ns), metadata=self._metadata)
        return ClientStream(call, lambda batch: batch, self._address)

    def _call(self, method: Any, request: Any, timeout: float | None = _CALL_TIMEOUT) -> Any:
        import grpc

        try:
            return method(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise _explained(error, self._address) from error
        except ValueError as error:  # a channel that was closed
            raise DaemonError(f"the connection to {self._address} was closed") from error


class ClientStream(Generic[T]):
    """Messages of a server stream as they come. ``cancel()`` may be called from any thread: iteration then ends."""

    def __init__(self, call: Any, convert: Callable[[Any], T], address: Address) -> None:
        self._call = call
        self._convert = convert
        self._address = address
        self._cancelled = False

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        import grpc

        try:
            return self._convert(next(self._call))
        except grpc.RpcError as error:
            if self._cancelled:
                raise StopIteration from None
            raise _explained(error, self._address) from error
        except ValueError as error:  # columns that do not fit together
            raise DaemonError(f"{self._address} sent what this version does not understand: {error}") from error

    def __enter__(self) -> ClientStream[T]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.cancel()

    def cancel(self) -> None:
        self._cancelled = True
        self._call.cancel()


def _explained(error: grpc.RpcError, address: Address) -> CuzkError:
    """What a gRPC status means for the user, in one line."""
    import grpc

    call: Any = error  # what calls raise is an RpcError and a Call at once
    code = call.code()
    details = call.details() or str(error)
    if code is grpc.StatusCode.UNAVAILABLE and REFUSED not in (call.trailing_metadata() or ()):
        if "http1" in details.lower() or "http2" in details.lower() or "HTTP/2" in details:
            return DaemonError(f"the program at {address} is not a proving engine: it does not speak gRPC")
        if "closed" in details and _speaks_tls(address):
            return DaemonError(
                f"the engine at {address} asks for TLS and a token: give --cert and --token, or set daemon.tls_cert "
                "and daemon.token_file where it is your own"
            )
        if "SSL" in details or "TLS" in details or "handshake" in details.lower():
            if not _speaks_tls(address):
                return DaemonError(
                    f"the program at {address} does not speak TLS: leave out --cert and --token, or check the address; "
                    "your own engine needs a restart to take daemon.tls_cert"
                )
            return DaemonError(f"the engine at {address} was not reached: TLS handshake failed; check daemon.tls_cert")
        return DaemonError(f"no engine answers at {address}: start it (`cuzk daemon start`), or check the address")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return DaemonError(f"the program at {address} is not a proving engine that this version understands: {details}")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DaemonError(f"the engine at {address} did not answer in time")
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return DaemonError(f"the engine at {address} refused the call: {details}")
    if code is grpc.StatusCode.CANCELLED:
        return DaemonError(f"the call to {address} was cancelled")
    if code is grpc.StatusCode.UNKNOWN:
        return DaemonError(f"the engine at {address} failed: {details}")
    return CuzkError(details)


def _speaks_tls(address: Address) -> bool:
    from cuzk_engine.client.tls import is_spoken

    return is_spoken(address.dialled)


def _submit_request(
    key_path: str | Path, circuit_id: str, priority: Priority, request_id: str, device: str, label: str
) -> pb.SubmitRequest:
    from cuzk_engine.client.convert import priority_to_wire
    from cuzk_engine.proto import engine_v1_pb2 as pb

    if bool(key_path) == bool(circuit_id):
        raise CuzkError("a job needs either the path of its key or the id of its circuit")
    request = pb.SubmitRequest(
        request_id=_text("request id", request_id),
        priority=priority_to_wire(priority),
        device=_text("device", device),
        label=_text("label", label),
    )
    if circuit_id:
        request.circuit_id = _text("circuit", circuit_id)
    else:
        request.key_path = _absolute(key_path)
    return request


def _job_request(job_id: str) -> pb.JobRequest:
    from cuzk_engine.proto import engine_v1_pb2 as pb

    return pb.JobRequest(id=_text("job", job_id))


def _change(change: SettingChange) -> pb.SettingChange:
    from cuzk_engine.proto import engine_v1_pb2 as pb

    key, device = _text("setting", change.key), _text("device", change.device)
    return pb.SettingChange(key=key, value=_text(f"{key}: value", change.value), device=device)


def _text(what: str, text: str) -> str:
    """Raises CuzkError for what cannot be sent: a command's arguments may be any bytes."""
    if not is_utf8(text):
        raise CuzkError(f"{what} {text!r} is not UTF-8, which the engine's protocol needs")
    return text


def _settings(answer: pb.SettingList) -> list[SettingInfo]:
    from cuzk_engine.client.convert import setting_from_wire

    return [setting_from_wire(setting) for setting in answer.settings]


def _absolute(path: str | Path) -> str:
    """The daemon has another working folder than its clients."""
    absolute = os.path.abspath(os.fspath(path)) if path else ""
    if not is_utf8(absolute):
        raise CuzkError(
            f"{absolute!r}: the name is not UTF-8, which the engine's protocol needs; rename or link the file"
        )
    return absolute
