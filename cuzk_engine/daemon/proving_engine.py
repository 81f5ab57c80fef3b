"""``cuzk.v1.ProvingEngine``: what clients of the reference system speak, as an adapter without state of its own.

Jobs of its kinds are stored and end like all others; as no synthesiser is installed they end FAILED and say so.
``gpus`` in GetStatus lists cards only: the CPU device is none, and clients count cards by it.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from cuzk_engine.client.types import JobState, Priority
from cuzk_engine.daemon import files
from cuzk_engine.daemon.answering import unary
from cuzk_engine.daemon.device_handle import DeviceHandle
from cuzk_engine.daemon.jobs import new_job_id
from cuzk_engine.daemon.metrics import Metrics
from cuzk_engine.daemon.records import JobRecord, PhaseSums
from cuzk_engine.daemon.refusal import Reason, RefusedError
from cuzk_engine.daemon.repetition import Contents, Seen
from cuzk_engine.daemon.supervisor import Supervisor
from cuzk_engine.errors import DaemonError
from cuzk_engine.proto import cuzk_v1_pb2 as pb
from cuzk_engine.proto import cuzk_v1_pb2_grpc as rpc

_STATUS = {
    JobState.COMPLETED: pb.AwaitProofResponse.COMPLETED,
    JobState.FAILED: pb.AwaitProofResponse.FAILED,
    JobState.CANCELLED: pb.AwaitProofResponse.CANCELLED,
}
_FILECOIN_CIRCUITS = ("porep-32g", "snap-32g", "wpost-32g", "winning-32g")
_NO_INPUTS = ("request_id", "priority")
_LIST = "vanilla_proofs"
_PRIORITIES = {0: Priority.NORMAL, 1: Priority.LOW, 2: Priority.NORMAL, 3: Priority.HIGH, 4: Priority.CRITICAL}


class ProvingEngine(rpc.ProvingEngineServicer):
    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._jobs = supervisor.jobs
        self._repetition = supervisor.repetition
        self._dispatcher = supervisor.dispatcher
        self._metrics = Metrics(supervisor)

    @unary
    async def SubmitProof(self, request: Any, context: Any) -> pb.SubmitProofResponse:  # noqa: N802 - the protocol's name
        job = await self._submit(request)
        return pb.SubmitProofResponse(
            job_id=job.id, queue_position=self._dispatcher.position(job), assigned_gpu=job.device
        )

    @unary
    async def AwaitProof(self, request: Any, context: Any) -> pb.AwaitProofResponse:  # noqa: N802
        return await self._await(self._jobs.get(request.job_id), request.timeout_ms)

    @unary
    async def Prove(self, request: Any, context: Any) -> pb.ProveResponse:  # noqa: N802
        if not request.HasField("submit"):
            raise RefusedError(Reason.INVALID_ARGUMENT, "submit is missing")
        return pb.ProveResponse(result=await self._await(await self._submit(request.submit), 0))

    @unary
    async def CancelProof(self, request: Any, context: Any) -> pb.CancelProofResponse:  # noqa: N802
        return pb.CancelProofResponse(was_running=self._jobs.cancel(request.job_id))

    @unary
    async def GetStatus(self, request: Any, context: Any) -> pb.GetStatusResponse:  # noqa: N802
        totals = self._jobs.totals
        return pb.GetStatusResponse(
            gpus=[self._gpu(device) for device in self._supervisor.devices if device.id.startswith("cuda")],
            loaded_srs=await self._loaded(),
            queues=[
                pb.QueueStatus(proof_kind=kind, pending=waiting, in_progress=running)
                for kind, (waiting, running) in sorted(self._jobs.by_kind().items())
            ],
            total_proofs_completed=totals.completed.total(),
            total_proofs_failed=totals.failed.total(),
            uptime_seconds=self._supervisor.uptime_seconds,
            pinned_memory_bytes=self._supervisor.devices.host_use.pinned,
            pinned_memory_limit_bytes=self._supervisor.devices.host_use.budget,
        )

    @unary
    async def GetMetrics(self, request: Any, context: Any) -> pb.GetMetricsResponse:  # noqa: N802
        return pb.GetMetricsResponse(prometheus_text=self._metrics.text())

    @unary
    async def PreloadSRS(self, request: Any, context: Any) -> pb.PreloadSrsResponse:  # noqa: N802
        path = await self._key_path(request.circuit_id)
        start = time.monotonic_ns()
        known = True
        settings = self._supervisor.pipeline_texts()
        for device in self._ready_devices():
            known = await _ask(device, "load", path=path, settings=settings) and known
        took = 0 if known else (time.monotonic_ns() - start) // 10**6
        await self._supervisor.devices.refresh_keys()
        return pb.PreloadSrsResponse(already_loaded=known, load_time_ms=took)

    @unary
    async def EvictSRS(self, request: Any, context: Any) -> pb.EvictSrsResponse:  # noqa: N802
        path = await self._key_path(request.circuit_id)
        freed = [await _ask(device, "evict", path=path) for device in self._ready_devices()]
        known = [nbytes for nbytes in freed if nbytes is not None]
        await self._supervisor.devices.refresh_keys()
        return pb.EvictSrsResponse(was_loaded=bool(known), freed_bytes=sum(known))

    async def _submit(self, request: Any) -> JobRecord:
        """Raises RefusedError for a kind or priority that is none, and for a request id that has asked for another
        proof."""
        kinds = {number: name for name, number in pb.ProofKind.items() if number}
        kind = kinds.get(request.proof_kind)
        if kind is None:
            known = ", ".join(f"{number} ({name})" for number, name in kinds.items())
            raise RefusedError(Reason.INVALID_ARGUMENT, f"proof_kind is {request.proof_kind}, expected one of {known}")
        priority = _PRIORITIES.get(request.priority)
        if priority is None:
            raise RefusedError(Reason.INVALID_ARGUMENT, f"priority is {request.priority}, expected 0 to 4")
        new = JobRecord(id=new_job_id(), kind=kind, request_id=request.request_id, priority=priority)
        if not new.request_id:
            return self._jobs.accept(new)
        contents = await asyncio.to_thread(self._contents, request)
        job = self._jobs.accept(new)
        if job is new:
            self._repetition.remember(new, [Seen(contents)])
        else:
            self._repetition.check_inputs(job, contents)
        return job

    def _contents(self, request: Any) -> Contents:
        """Of all that says what is to be proved; up to 256 MiB."""
        measure = self._repetition.measure()
        for field, value in request.ListFields():
            if field.name not in _NO_INPUTS:
                for item in value if field.name == _LIST else [value]:
                    data = item if isinstance(item, bytes) else b"%d" % item
                    measure.update(b"%d:%d:" % (field.number, len(data)))
                    measure.update(data)
        return measure.contents()

    async def _await(self, job: JobRecord, timeout_ms: int) -> pb.AwaitProofResponse:
        try:
            await asyncio.wait_for(self._ended(job), timeout_ms / 1000 if timeout_ms else None)
        except TimeoutError:
            return pb.AwaitProofResponse(job_id=job.id, status=pb.AwaitProofResponse.TIMEOUT)
        proofs = await self._supervisor.results.proofs(job) if job.state is JobState.COMPLETED else []
        took = PhaseSums.of(job.phases)
        started = job.started_unix_ns or job.finished_unix_ns
        return pb.AwaitProofResponse(
            job_id=job.id,
            status=_STATUS[job.state],
            proof="".join(proofs).encode(),
            error_message=job.error,
            queue_wait_ms=max(0, started - job.submitted_unix_ns) // 10**6,
            srs_load_ms=took.srs,
            synthesis_ms=took.synthesis,
            gpu_compute_ms=took.device,
            total_ms=max(0, job.finished_unix_ns - job.submitted_unix_ns) // 10**6,
        )

    async def _ended(self, job: JobRecord) -> None:
        while not job.state.ended:
            await self._jobs.changes(job)

    def _gpu(self, device: DeviceHandle) -> pb.GPUStatus:
        running = self._dispatcher.running_on(device.id)
        first = running[min(running)][0] if running else None
        capacity = int(device.info.get("capacity", 0))
        return pb.GPUStatus(
            ordinal=int(device.id.partition(":")[2] or 0),
            name=device.info.get("name", ""),
            vram_total_bytes=capacity,
            vram_free_bytes=max(0, capacity - self._supervisor.hub.memory(device.id)),
            current_job_id=first.id if first else "",
            current_proof_kind=first.kind if first else "",
        )

    async def _loaded(self) -> list[pb.SRSStatus]:
        """From what was last heard of the device processes: a status call waits for nobody."""
        by_path = {circuit.key_path: circuit.id for circuit in self._supervisor.circuits.list()}
        return [
            pb.SRSStatus(
                circuit_id=by_path.get(path, path),
                # The protocol knows no device tier; what is there is at least as fast as page-locked memory.
                tier=pb.SRSStatus.WARM if state.tier == "warm" else pb.SRSStatus.HOT,
                size_bytes=state.nbytes,
                ref_count=self._dispatcher.users_of(path),
            )
            for path, state in self._supervisor.devices.loaded_keys.items()
        ]

    async def _key_path(self, circuit: str) -> str:
        record = self._supervisor.circuits.named(circuit)
        if record is None:
            raise RefusedError(Reason.NOT_FOUND, self._missing(circuit))
        return (await self._supervisor.circuits.find(record.info.id)).info.key_path

    def _missing(self, circuit: str) -> str:
        text = f"circuit {circuit[:80]!r} is not registered"
        if circuit not in _FILECOIN_CIRCUITS:
            return f"{text}: register its key with cuzk.engine.v1.Circuits"
        folder = self._supervisor.settings.text("srs.param_cache")
        found = files.count_params(folder)
        what = f"{found} .params files" if found else "no .params file" if found == 0 else "no such folder"
        return (
            f"{text}: it needs its .params file and, beside it, its constraint system (.r1cs or .pce), which a "
            f".params file does not hold; in srs.param_cache ({folder}) there is {what}"
        )

    def _ready_devices(self) -> list[DeviceHandle]:
        devices = [device for device in self._supervisor.devices if device.is_ready]
        if not devices:
            raise RefusedError(Reason.INTERNAL, "no device is ready")
        return devices


async def _ask(device: DeviceHandle, action: str, **arguments: Any) -> Any:
    try:
        return await device.call(action, **arguments)
    except DaemonError as error:
        raise RefusedError(Reason.INTERNAL, str(error)) from error
