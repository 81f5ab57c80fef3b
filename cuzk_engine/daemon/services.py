"""The services of ``cuzk.engine.v1`` over the supervisor."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from cuzk_engine.client.convert import (
    circuit_to_wire,
    identity_to_wire,
    job_to_wire,
    plan_to_wire,
    priority_from_wire,
    setting_to_wire,
)
from cuzk_engine.client.types import CircuitInfo, Priority
from cuzk_engine.daemon.answering import streaming, unary
from cuzk_engine.daemon.files import check_witness_file, file_identity
from cuzk_engine.daemon.jobs import new_job_id
from cuzk_engine.daemon.planning import plan
from cuzk_engine.daemon.records import CIRCUIT_KIND, CircuitRecord, JobRecord, Partition
from cuzk_engine.daemon.refusal import Reason, RefusedError
from cuzk_engine.daemon.repetition import Measure, Seen, check_circuit, check_kind, only_part, refusal_of_stream
from cuzk_engine.daemon.results import check_deliverable
from cuzk_engine.daemon.supervisor import Supervisor
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.proto import engine_v1_pb2_grpc as rpc

_MAX_LABEL = 200
_MAX_PARTITIONS = 4096
_READERS = 3  # whole witnesses that are read at a time: threads are left for everything else
_NO_CIRCUIT = "a job needs circuit_id or key_path"


class CircuitsService(rpc.CircuitsServicer):
    def __init__(self, supervisor: Supervisor) -> None:
        self._circuits = supervisor.circuits

    @unary
    async def Register(self, request: Any, context: Any) -> pb.Circuit:  # noqa: N802 - the protocol's name
        if len(request.name) > _MAX_LABEL:
            raise RefusedError(Reason.INVALID_ARGUMENT, f"a circuit's name may have {_MAX_LABEL} characters")
        return circuit_to_wire((await self._circuits.register(request.key_path, request.name)).info)

    @unary
    async def List(self, request: Any, context: Any) -> pb.ListCircuitsResponse:  # noqa: N802
        return pb.ListCircuitsResponse(circuits=map(circuit_to_wire, self._circuits.list()))

    @unary
    async def Remove(self, request: Any, context: Any) -> pb.RemoveCircuitResponse:  # noqa: N802
        self._circuits.remove(request.id)
        return pb.RemoveCircuitResponse()


class JobsService(rpc.JobsServicer):
    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._jobs = supervisor.jobs
        self._repetition = supervisor.repetition
        self._reading = asyncio.Semaphore(_READERS)

    @unary
    async def Submit(self, request: Any, context: Any) -> pb.Job:  # noqa: N802
        job = self._jobs.find_request(request.request_id)
        given = [request.witness_path, *request.more_witness_paths]
        if job is None:
            circuit, priority, device = await self._look_at(request)
            if len(given) > _MAX_PARTITIONS:
                raise RefusedError(
                    Reason.INVALID_ARGUMENT, f"the job has {len(given):,} witnesses, may have {_MAX_PARTITIONS:,}"
                )
            witnesses = [self._supervisor.allowed.check(path) for path in given]
            seen = await self._look_at_witnesses(witnesses, circuit.info, bool(request.request_id))
            parts = [Partition(number, path) for number, path in enumerate(witnesses)]
            for part, witness in zip(parts, seen, strict=False):
                part.witness_identity = witness.identity
            new = _job(new_job_id(), request, circuit, priority, parts, device)
            job = self._jobs.accept(new)
            if job is new:
                self._remember(new, seen)
                return job_to_wire(self._jobs.info(job))
        else:
            await self._check_circuit(job, request)
            witnesses = [self._supervisor.allowed.check(path) for path in given]
        async with self._reading:
            await asyncio.to_thread(self._repetition.check_paths, job, self._jobs.parts(job), witnesses)
        return job_to_wire(self._jobs.info(job))

    @unary
    async def SubmitStream(self, request_iterator: Any, context: Any) -> pb.Job:  # noqa: N802
        messages = aiter(request_iterator)
        first = await anext(messages, None)
        if first is None or first.WhichOneof("part") != "request":
            raise RefusedError(Reason.INVALID_ARGUMENT, "the first message of SubmitStream must carry the request")
        request = first.request
        if request.witness_path or request.more_witness_paths:
            raise RefusedError(
                Reason.INVALID_ARGUMENT,
                "SubmitStream carries the one witness of a job itself: witness_path and more_witness_paths must be "
                "empty; Submit takes several by their paths",
            )
        known = self._jobs.find_request(request.request_id)
        if known is not None:
            await self._check_circuit(known, request)
            await self._compare(known, messages)
            return job_to_wire(self._jobs.info(known))
        circuit, priority, device = await self._look_at(request)
        job_id = new_job_id()
        measure = self._repetition.measure() if request.request_id else None
        path = await self._spool(job_id, messages, circuit, measure)
        job, new = None, _job(job_id, request, circuit, priority, [Partition(0, path)], device, spooled=True)
        try:
            if measure is not None:
                new.parts[0].witness_identity = file_identity(path)
            info = circuit.info
            await asyncio.to_thread(
                check_witness_file, path, info.key_path, info.curve, info.n_vars, "the streamed witness"
            )
            job = self._jobs.accept(new)
            if measure is not None and job is new:
                self._remember(new, [Seen(measure.contents())])
        finally:
            if job is not new:
                self._supervisor.spool.remove(path)
        if measure is not None and job is not new:  # the same request came twice at once
            part = only_part(job, self._jobs.parts(job))
            await asyncio.to_thread(self._repetition.check_streamed, job, part, measure.contents())
        return job_to_wire(self._jobs.info(job))

    @streaming
    async def Watch(self, request: Any, context: Any) -> AsyncIterator[pb.Job]:  # noqa: N802
        job = self._jobs.get(request.id)
        while True:
            changed = self._jobs.next_change(job)
            info = self._jobs.info(job)
            yield job_to_wire(info)
            if info.state.ended:
                return
            await changed.wait()

    @unary
    async def Get(self, request: Any, context: Any) -> pb.Job:  # noqa: N802
        try:
            job = self._jobs.get(request.id)
        except RefusedError:
            named = self._jobs.find_request(request.id)  # of any age, where List has the newest only
            if named is None:
                raise
            job = named
        return job_to_wire(self._jobs.info(job))

    @unary
    async def List(self, request: Any, context: Any) -> pb.ListJobsResponse:  # noqa: N802
        return pb.ListJobsResponse(jobs=(job_to_wire(self._jobs.info(j)) for j in self._jobs.newest(request.limit)))

    @unary
    async def Fetch(self, request: Any, context: Any) -> pb.Proof:  # noqa: N802
        job = self._jobs.get(request.id)
        if request.HasField("first"):
            return await self._supervisor.results.page(job, request.first)
        return await self._supervisor.results.whole(job)

    @unary
    async def Cancel(self, request: Any, context: Any) -> pb.CancelResponse:  # noqa: N802
        return pb.CancelResponse(was_running=self._jobs.cancel(request.id))

    async def _look_at(self, request: Any) -> tuple[CircuitRecord, Priority, str]:
        """The circuit, the priority and the wanted device ("": any) of a request. Raises CuzkError for one that cannot
        be run."""
        if self._jobs.draining:
            raise RefusedError(Reason.FAILED_PRECONDITION, "the engine is draining: it takes no new jobs")
        priority = priority_from_wire(request.priority)
        if priority is None:
            raise RefusedError(
                Reason.INVALID_ARGUMENT, f"priority {request.priority} is not one: 1 (low) to 4 (critical)"
            )
        if len(request.label) > _MAX_LABEL:
            raise RefusedError(Reason.INVALID_ARGUMENT, f"a label may have {_MAX_LABEL} characters")
        device = self._wanted_device(request.device)
        match request.WhichOneof("circuit"):
            case "circuit_id":
                circuit = await self._supervisor.circuits.find(request.circuit_id)
            case "key_path":
                circuit = await self._supervisor.circuits.register(request.key_path)
            case _:
                raise RefusedError(Reason.INVALID_ARGUMENT, _NO_CIRCUIT)
        check_deliverable(circuit.info)
        return circuit, priority, device

    def _wanted_device(self, name: str) -> str:
        devices = self._supervisor.devices
        found = devices.find(name)
        wanted = devices if name in ("", "auto") else [found] if found is not None else []
        if not wanted:
            known = ", ".join(device.id for device in devices)
            raise RefusedError(
                Reason.INVALID_ARGUMENT, f"device {name[:80]!r} is not in use by this engine; there is {known}"
            )
        if all(device.state == "failed" for device in wanted):
            raise RefusedError(Reason.FAILED_PRECONDITION, f"device {wanted[0].id} does not start: {wanted[0].reason}")
        return found.id if found is not None else ""

    async def _check_circuit(self, known: JobRecord, request: Any) -> None:
        """Raises RefusedError where ``known``, which has the request's id, proves another circuit."""
        check_kind(known, CIRCUIT_KIND)
        match request.WhichOneof("circuit"):
            case "circuit_id":
                check_circuit(known, request.circuit_id)
            case "key_path":
                path = self._supervisor.allowed.check(request.key_path)
                if (path, file_identity(path)) != (known.key_path, known.key_identity):
                    check_circuit(known, await self._supervisor.circuits.id_of(path), path)
            case _:
                raise RefusedError(Reason.INVALID_ARGUMENT, _NO_CIRCUIT)

    async def _look_at_witnesses(self, paths: list[str], circuit: CircuitInfo, named: bool) -> list[Seen]:
        """Raises CuzkError for a witness that is not one of the circuit. ``named``: the request may come again, and
        what was seen of each witness is returned."""
        await asyncio.to_thread(_check_witnesses, paths, circuit)
        if not named:
            return []
        async with self._reading:
            return await asyncio.to_thread(lambda: [self._repetition.look(path) for path in paths])

    def _remember(self, job: JobRecord, seen: list[Seen]) -> None:
        if seen:
            self._repetition.remember(job, seen)

    async def _compare(self, known: JobRecord, messages: AsyncIterator[Any]) -> None:
        """Compares a stream that comes again with the witness of its job, as far as that is known; keeps nothing of
        it. Raises RefusedError."""
        part = only_part(known, self._jobs.parts(known))
        contents = await asyncio.to_thread(self._repetition.contents_of, known, part)
        if contents is None:
            return
        measure = self._repetition.measure()
        async for message in messages:
            await asyncio.to_thread(measure.update, _data(message))
            if measure.nbytes > contents.nbytes:
                break
        if contents.differ(measure.contents()):
            raise refusal_of_stream(known, part)

    async def _spool(
        self, job_id: str, messages: AsyncIterator[Any], circuit: CircuitRecord, measure: Measure | None
    ) -> str:
        """Writes the streamed bytes to a file of the spool; removes it when anything goes wrong."""
        limit = 32 * circuit.info.n_vars + (1 << 20)  # the values, and room for the headers
        path, size = "", 0
        try:
            path, descriptor = self._supervisor.spool.create(job_id)
            with open(descriptor, "wb") as sink:
                async for message in messages:
                    data = _data(message)
                    size += len(data)
                    if size > limit:
                        raise RefusedError(
                            Reason.INVALID_ARGUMENT,
                            f"the streamed witness has more than {limit:,} bytes, "
                            f"too many for {circuit.info.n_vars:,} signals",
                        )
                    await asyncio.to_thread(sink.write, data)
                    if measure is not None:
                        await asyncio.to_thread(measure.update, data)
        except OSError as error:
            self._supervisor.spool.remove(path)
            text = (error.strerror or str(error)).lower()
            raise RefusedError(
                Reason.RESOURCE_EXHAUSTED, f"{self._supervisor.spool.folder}: the witness cannot be kept: {text}"
            ) from error
        except BaseException:
            self._supervisor.spool.remove(path)
            raise
        return path


class TelemetryService(rpc.TelemetryServicer):
    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    @streaming
    async def Stream(self, request: Any, context: Any) -> AsyncIterator[pb.TelemetryBatch]:  # noqa: N802
        hub = self._supervisor.hub
        reader, history, ledger = hub.subscribe(request.history_ns)
        try:
            yield self._supervisor.publisher.first_batch(ledger, history.first_ns)
            for data in history.take():
                yield pb.TelemetryBatch.FromString(data)
            while True:
                yield await reader.batch()
        finally:
            hub.unsubscribe(reader)


class ControlService(rpc.ControlServicer):
    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    @unary
    async def Identify(self, request: Any, context: Any) -> pb.Identity:  # noqa: N802
        return identity_to_wire(self._supervisor.identity())

    @unary
    async def GetSettings(self, request: Any, context: Any) -> pb.SettingList:  # noqa: N802
        return pb.SettingList(settings=map(setting_to_wire, self._supervisor.setting_infos()))

    @unary
    async def ApplySettings(self, request: Any, context: Any) -> pb.SettingList:  # noqa: N802
        self._supervisor.apply_settings([(c.key, c.value, c.device) for c in request.changes])
        return pb.SettingList(settings=map(setting_to_wire, self._supervisor.setting_infos()))

    @unary
    async def Plan(self, request: Any, context: Any) -> pb.MemoryPlan:  # noqa: N802
        return plan_to_wire(await plan(self._supervisor, request))

    @unary
    async def Drain(self, request: Any, context: Any) -> pb.DrainResponse:  # noqa: N802
        self._supervisor.begin_drain()
        timeout = request.timeout_ms / 1000 if request.timeout_ms else None
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._supervisor.dispatcher.drained(), timeout)
        return pb.DrainResponse(drained=self._supervisor.dispatcher.is_idle)

    @unary
    async def Shutdown(self, request: Any, context: Any) -> pb.ShutdownResponse:  # noqa: N802
        timeout = request.timeout_ms / 1000 if request.timeout_ms else None
        self._supervisor.request_stop(drain=request.drain, timeout=timeout)
        return pb.ShutdownResponse()


def _data(message: Any) -> bytes:
    """The bytes in a message of SubmitStream, but for the first one. Raises RefusedError."""
    if message.WhichOneof("part") != "data":
        raise RefusedError(Reason.INVALID_ARGUMENT, "only the first message of SubmitStream may carry a request")
    data: bytes = message.data
    return data


def _check_witnesses(paths: list[str], circuit: CircuitInfo) -> None:
    for path in paths:
        check_witness_file(path, circuit.key_path, circuit.curve, circuit.n_vars)


def _job(
    job_id: str,
    request: Any,
    circuit: CircuitRecord,
    priority: Priority,
    parts: list[Partition],
    wanted_device: str,
    *,
    spooled: bool = False,
) -> JobRecord:
    return JobRecord(
        id=job_id,
        request_id=request.request_id,
        circuit_id=circuit.info.id,
        circuit_name=circuit.info.name,
        curve=circuit.info.curve,
        label=request.label,
        key_path=circuit.info.key_path,
        key_identity=circuit.identity,
        spooled=spooled,
        wanted_device=wanted_device,
        priority=priority,
        parts=parts,
    )
