"""The way into a running engine: an API client and the daemon's life cycle. The window and scripts import from here
only.
"""

import os

# Before grpc is loaded, which else writes lines of its own to a user's terminal.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from cuzk_engine.client.api import EngineClient
from cuzk_engine.client.lifecycle import daemon_status, restart_daemon, start_daemon, stop_daemon
from cuzk_engine.client.types import (
    DEFAULT_ADDRESS,
    CircuitInfo,
    DaemonStatus,
    DeviceDescription,
    EngineIdentity,
    JobInfo,
    JobState,
    MemoryPlanInfo,
    PhaseTime,
    Priority,
    ProcessState,
    ProofResult,
    SettingChange,
    SettingInfo,
    SpanColumns,
    TelemetryUpdate,
)
from cuzk_engine.errors import CuzkError, DaemonError

__all__ = [
    "DEFAULT_ADDRESS",
    "CircuitInfo",
    "CuzkError",
    "DaemonError",
    "DaemonStatus",
    "DeviceDescription",
    "EngineClient",
    "EngineIdentity",
    "JobInfo",
    "JobState",
    "MemoryPlanInfo",
    "PhaseTime",
    "Priority",
    "ProcessState",
    "ProofResult",
    "SettingChange",
    "SettingInfo",
    "SpanColumns",
    "TelemetryUpdate",
    "daemon_status",
    "restart_daemon",
    "start_daemon",
    "stop_daemon",
]
