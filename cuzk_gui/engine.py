"""What the window asks of an engine: one narrow seam, so that tests put their own engine behind it.

Every call may block for long; the window makes them from its worker threads only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from cuzk_engine.client import (
    CircuitInfo,
    DaemonStatus,
    JobInfo,
    MemoryPlanInfo,
    ProofResult,
    SettingChange,
    SettingInfo,
    TelemetryUpdate,
    daemon_status,
    restart_daemon,
    start_daemon,
    stop_daemon,
)
from cuzk_engine.client.connecting import connect


class UpdateStream(Protocol):
    """The telemetry stream; ``cancel`` ends it from any thread."""

    def __iter__(self) -> Iterator[TelemetryUpdate]: ...
    def cancel(self) -> None: ...


class Connection(Protocol):
    """Calls to a running engine. Each raises CuzkError, in one line, when it cannot be done."""

    def apply_settings(self, changes: Iterable[SettingChange]) -> list[SettingInfo]: ...
    def plan(
        self, *, circuit_id: str = "", device: str = "", settings: Iterable[SettingChange] = ()
    ) -> MemoryPlanInfo: ...
    def register_circuit(self, path: str | Path, name: str = "") -> CircuitInfo: ...
    def circuits(self) -> list[CircuitInfo]: ...
    def submit(self, *, key_path: str | Path = "", witness_path: str | Path, label: str = "") -> JobInfo: ...
    def submit_stream(self, data: Iterable[bytes], *, key_path: str | Path = "", label: str = "") -> JobInfo: ...
    def jobs(self, limit: int = 0) -> list[JobInfo]: ...
    def fetch(self, job_id: str) -> ProofResult: ...
    def cancel(self, job_id: str) -> bool: ...
    def telemetry(self, history_ns: int = 0, *, columns: bool = False) -> UpdateStream: ...
    def shutdown(self, *, drain: bool = True, timeout: float | None = None) -> None: ...
    def close(self) -> None: ...


class Engine(Protocol):
    """An engine's process, and the way to talk to it. ``elsewhere``: how one is reached that cannot be started and
    stopped from here, as "over TLS"; "" for this machine's own."""

    @property
    def elsewhere(self) -> str: ...
    def status(self) -> DaemonStatus: ...
    def start(self) -> DaemonStatus: ...
    def stop(self) -> DaemonStatus: ...
    def restart(self) -> DaemonStatus: ...
    def connect(self, address: str) -> Connection: ...


class LocalEngine:
    """The engine of this machine and configuration."""

    elsewhere = ""

    def status(self) -> DaemonStatus:
        return daemon_status()

    def start(self) -> DaemonStatus:
        return start_daemon(started_by="window")

    def stop(self) -> DaemonStatus:
        return stop_daemon()

    def restart(self) -> DaemonStatus:
        return restart_daemon(started_by="window")

    def connect(self, address: str) -> Connection:
        return connect(address)
