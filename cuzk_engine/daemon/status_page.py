"""``/status``, ``/metrics`` and ``/healthz`` over HTTP, for monitors. Read-only, one request a connection, small on
purpose.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
from typing import Any, Final

from cuzk_engine.client.address import Address
from cuzk_engine.client.instance import is_taken, taken_message
from cuzk_engine.daemon.metrics import Metrics
from cuzk_engine.daemon.records import JobRecord, Partition, PartitionState, PhaseSums
from cuzk_engine.daemon.supervisor import Supervisor
from cuzk_engine.errors import DaemonError

log = logging.getLogger("cuzk")

_HEAD_BYTES: Final = 16 << 10
_HEAD_SECONDS: Final = 10.0
_CONNECTIONS: Final = 256
_SHOWN_SECONDS: Final = 30  # how long a finished job stays listed
_WORDS: Final = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class StatusPage:
    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._metrics = Metrics(supervisor)
        self._server: asyncio.Server | None = None
        self._path = ""
        self._connections: set[asyncio.StreamWriter] = set()

    async def start(self, address: Address) -> None:
        """Raises DaemonError: for an address that is taken, or that other machines can reach."""
        if not address.is_local:
            raise DaemonError(
                f"daemon.status_listen {address} can be reached from other machines and has no TLS: use 127.0.0.1"
            )
        if is_taken(address):
            raise DaemonError(f"daemon.status_listen: {taken_message(address).replace('daemon.listen', 'address')}")
        try:
            if address.path:
                self._path = address.path
                self._server = await asyncio.start_unix_server(self._serve, address.path, limit=_HEAD_BYTES)
            else:
                self._server = await asyncio.start_server(self._serve, address.host, address.port, limit=_HEAD_BYTES)
        except OSError as error:
            raise DaemonError(f"daemon.status_listen {address}: {error.strerror or error}") from error

    @property
    def port(self) -> int:
        """Of the first socket."""
        return int(self._server.sockets[0].getsockname()[1]) if self._server else 0

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in list(self._connections):
                writer.close()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._server.wait_closed(), 1.0)
            if self._path:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= _CONNECTIONS:  # idle ones go first only by their timeout
            writer.close()
            return
        self._connections.add(writer)
        try:
            with contextlib.suppress(OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(_HEAD_SECONDS):
                    writer.write(await self._answer(reader))
                    await writer.drain()
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response(400, "text/plain", "the request's head is too long\n")
        parts = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            return _response(400, "text/plain", "this is not HTTP/1\n")
        method, target, _ = parts
        path = target.partition("?")[0]
        pages = {"/status": self._status, "/metrics": self._metrics_page, "/healthz": self._health}
        if path not in pages:
            return _response(404, "text/plain", "there are /status, /metrics and /healthz\n", method == "HEAD")
        if method not in ("GET", "HEAD"):
            return _response(405, "text/plain", "only GET and HEAD\n", extra="Allow: GET, HEAD\r\n")
        code, kind, body = pages[path]()
        return _response(code, kind, body, method == "HEAD")

    def _health(self) -> tuple[int, str, str]:
        state = self._supervisor.state
        return (200 if state == "ready" else 503), "text/plain", state + "\n"

    def _metrics_page(self) -> tuple[int, str, str]:
        return 200, "text/plain; version=0.0.4; charset=utf-8", self._metrics.text()

    def _status(self) -> tuple[int, str, str]:
        return 200, "application/json", json.dumps(status_document(self._supervisor))


def status_document(supervisor: Supervisor) -> dict[str, Any]:
    """The reference's document; what this engine does not have is 0 or empty."""
    jobs, dispatcher = supervisor.jobs, supervisor.dispatcher
    now = time.time_ns()
    recent = [
        job for job in jobs.newest(200) if not job.state.ended or now - job.finished_unix_ns < _SHOWN_SECONDS * 10**9
    ]
    capacity = sum(int(device.info.get("capacity", 0)) for device in supervisor.devices)
    used = sum(supervisor.hub.memory(device.id) for device in supervisor.devices)
    names = {circuit.key_path: circuit for circuit in supervisor.circuits.list()}
    states = [part.state for device in supervisor.devices for _, part in dispatcher.running_on(device.id).values()]
    active = states.count(PartitionState.SYNTHESIZING)
    workers = []
    for number, device in enumerate(supervisor.devices):
        running = dispatcher.running_on(device.id)
        for worker in range(device.workers):
            job, part = running.get(worker, (None, None))
            workers.append(
                {
                    "worker_id": worker,
                    "gpu_ordinal": number,
                    "state": "proving" if job else "idle",
                    "current_job": job.id if job else None,
                    "current_partition": part.number if part else None,
                    "busy_secs": (now - part.started_unix_ns) / 1e9 if part else 0.0,
                }
            )
    return {
        "uptime_secs": supervisor.uptime_seconds,
        "memory": {"total_bytes": capacity, "used_bytes": used, "available_bytes": max(0, capacity - used)},
        "synthesis": {"max_concurrent": sum(device.workers for device in supervisor.devices), "active": active},
        "pipelines": [_pipeline(job, jobs.parts(job), now) for job in recent],
        "gpu_workers": workers,
        "allocations": {
            "srs": [
                {
                    "circuit_id": names[path].id if path in names else path,
                    "bytes": state.nbytes,
                    "tier": state.tier,
                    "ref_count": dispatcher.users_of(path),
                    "last_used_secs_ago": max(0.0, (time.monotonic_ns() - state.last_used_ns) / 1e9),
                    "evictable": dispatcher.users_of(path) == 0,
                }
                for path, state in supervisor.devices.loaded_keys.items()
            ],
            "pce": [],
        },
        "counters": {
            "total_completed": jobs.totals.completed.total(),
            "total_failed": jobs.totals.failed.total(),
            "completed_by_kind": dict(jobs.totals.completed),
            "failed_by_kind": dict(jobs.totals.failed),
            "queue_depth": jobs.queued,
        },
        "buffers": {
            "synth_in_flight": active,
            "provers_in_flight": states.count(PartitionState.GPU),
            "aux_in_flight": 0,
            "shells_in_flight": 0,
            "pending_handles": 0,
        },
    }


def _pipeline(job: JobRecord, parts: list[Partition], now: int) -> dict[str, Any]:
    return {
        "job_id": job.request_id or job.id,
        "proof_kind": job.kind,
        "started_secs_ago": (now - (job.started_unix_ns or job.submitted_unix_ns)) / 1e9,
        "total_partitions": job.partitions,
        "partitions_done": job.partitions_done,
        "partitions": [_partition(part) for part in parts],
    }


def _partition(part: Partition) -> dict[str, Any]:
    took = PhaseSums.of(part.phases) if part.phases else None
    return {
        "index": part.number,
        "state": part.state,
        "synth_ms": took.synthesis if took else None,
        "gpu_ms": took.device if took else None,
    }


def _response(code: int, kind: str, body: str, head_only: bool = False, extra: str = "") -> bytes:
    data = body.encode()
    head = (
        f"HTTP/1.1 {code} {_WORDS[code]}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n"
        f"{extra}Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if head_only else data)
