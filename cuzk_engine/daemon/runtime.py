"""What a device process needs of the thing it runs: a device with its runner and its loaded keys.

``make_runtime`` builds the real one. Tests put another one in its place by naming a function of the same signature
in the variable ``CUZK_TEST_RUNTIME`` ("module:function").
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from cuzk_engine.client.types import MemoryPlanInfo
from cuzk_engine.devices.base import CancelToken, DeviceInfo, EventSink

_TEST_VARIABLE: Final = "CUZK_TEST_RUNTIME"

Progress = Callable[[str, float], None]
"""Called with the phase and the share 0…1 of the whole job."""

Opening = Callable[[str], None]
"""Called with each step of opening a device, and with how far a long one is."""


class Order(NamedTuple):
    """One partition of a job for one worker. ``key_identity``: the state of the key file when the job was accepted
    (device, inode, size, mtime, ctime). ``settings``: the pipeline's settings as texts. ``partition`` of
    ``partitions``, from 0. ``reduced``: how many steps of the degraded modes to begin with, since memory was short."""

    job: str
    worker: int
    key_path: str
    key_identity: tuple[int, ...]
    witness_path: str
    settings: Mapping[str, str]
    partition: int = 0
    partitions: int = 1
    reduced: int = 0


class Outcome(NamedTuple):
    """A verified proof as snarkjs writes it, its public signals (plain, 32 bytes each, little-endian), and what each
    phase took (name, nanoseconds)."""

    proof_json: str
    public: bytes
    phases: Sequence[tuple[str, int]] = ()


class KeyState(NamedTuple):
    """A loaded key: its file's path, the bytes that it takes where its ``tier`` is ("device", "hot": page-locked,
    "warm": mapped, which the system's cache holds), how many proofs use it, and when one did (CLOCK_MONOTONIC)."""

    path: str
    nbytes: int
    tier: str = "warm"
    users: int = 0
    last_used_ns: int = 0


class HostUse(NamedTuple):
    """Page-locked bytes of the process, and the most that its share of the host's budget admits."""

    pinned: int = 0
    budget: int = 0


class DeviceRuntime(Protocol):
    """Every method may be called from several threads at once, and raises CuzkError for what a user can understand."""

    @property
    def info(self) -> DeviceInfo: ...

    def prove(self, order: Order, progress: Progress, cancel: CancelToken) -> Outcome:
        """Raises CancelledError when ``cancel`` was set."""
        ...

    def load_key(self, path: str, settings: Mapping[str, str]) -> bool:
        """Loads a key as proofs with these settings use it; true when nothing was left to do."""
        ...

    def evict_key(self, path: str) -> int | None:
        """Bytes given back; None when it was not loaded."""
        ...

    def loaded_keys(self) -> list[KeyState]: ...

    def host_use(self) -> HostUse: ...

    def plan(self, key_path: str, settings: Mapping[str, str], workers: int) -> MemoryPlanInfo:
        """What proofs with this key need when ``workers`` of them run at once. Quick: asked while settings change."""
        ...

    def close(self) -> None: ...


def make_runtime(device: str, options: Mapping[str, Any], sink: EventSink, opening: Opening) -> DeviceRuntime:
    """The runtime of ``device``.

    ``options``: texts of cpu.arena ("arena") and of memory.* ("budget", "margin", "min_idle"); "threads" and
    "evaluation_threads" (0: all); among how many "processes" budget and threads are shared. Raises CuzkError.
    """
    replacement = os.environ.get(_TEST_VARIABLE)
    if replacement:
        module, _, name = replacement.partition(":")
        factory: Callable[[str, Mapping[str, Any], EventSink, Opening], DeviceRuntime] = getattr(
            importlib.import_module(module), name
        )
        return factory(device, options, sink, opening)
    opening("loading its libraries")
    from cuzk_engine.daemon.runner_runtime import RunnerRuntime

    return RunnerRuntime.open(device, options, sink, opening)
