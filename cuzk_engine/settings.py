"""Every setting in one table: it feeds the TOML reader, the command line, the wire and the window's forms.

A value is a bool, an int, a str or a tuple of str. Sizes and durations are kept as people write them and parsed
where they are used, so that what is shown is what was written. Its text form (on the wire, in the environment, in
forms) is that of TOML without quotes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cuzk_engine.errors import SettingError
from cuzk_engine.units import DURATION_FORMS, SIZE_FORMS, TooLargeError, format_size, parse_duration, parse_size

Value = bool | int | str | tuple[str, ...]


class Type(StrEnum):
    BOOL = "bool"
    INT = "int"
    ENUM = "enum"
    SIZE = "size"
    DURATION = "duration"
    STRING = "string"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class Definition:
    """One setting. ``words`` are values allowed beside the type's own; ``replacement`` marks an old key that is
    only warned about; ``inert`` one that is read for compatibility and changes nothing yet."""

    key: str
    type: Type
    default: Value
    title: str
    help: str
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    words: tuple[str, ...] = ()
    live: bool = False
    inert: bool = False
    replacement: str | None = None

    @property
    def table(self) -> str:
        return self.key.partition(".")[0]

    def check(self, value: object) -> Value:
        """``value`` (as TOML gives it) in this setting's type. Raises SettingError naming the key, the value and
        what it may be.
        """
        checked = self._checked(value)
        if checked is None:
            raise SettingError(
                f"{self.key} is {_shown(value)}: {_too_large(self.type, value) or f'expected {self.expected}'}"
            )
        return checked

    def parse(self, text: str) -> Value:
        """A value from its text form. Raises SettingError."""
        value: object = text
        if self.type is Type.BOOL:
            value = {"true": True, "false": False}.get(text, text)
        elif self.type is Type.INT:
            digits = text.removeprefix("-")
            value = int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else text
        elif self.type is Type.LIST:
            inner = text.strip().removeprefix("[").removesuffix("]")
            value = [item.strip().strip("\"'") for item in inner.split(",") if item.strip()]
        return self.check(value)

    def text(self, value: Value) -> str:
        """The text form of a value."""
        return value_text(value)

    @property
    def expected(self) -> str:
        """What it may be, in words."""
        words = "".join(f'"{word}" or ' for word in self.words)
        match self.type:
            case Type.BOOL:
                return "true or false"
            case Type.INT:
                low, high = self.minimum, self.maximum
                span = (
                    f" from {low} to {high}" if high is not None else f" of at least {low}" if low is not None else ""
                )
                return f"a whole number{span}"
            case Type.ENUM:
                return "one of " + ", ".join(f'"{choice}"' for choice in self.choices)
            case Type.SIZE:
                least = f" of at least {format_size(self.minimum)}" if self.minimum else ""
                return f"{words}a size{least}: {SIZE_FORMS}"
            case Type.DURATION:
                return f"{words}a duration: {DURATION_FORMS}"
            case Type.STRING:
                return "a text"
            case Type.LIST:
                return 'a list of texts, as in ["a", "b"]'

    def _checked(self, value: object) -> Value | None:
        match self.type:
            case Type.BOOL:
                return value if isinstance(value, bool) else None
            case Type.INT:
                if isinstance(value, bool) or not isinstance(value, int):
                    return None
                low = self.minimum if self.minimum is not None else value
                high = self.maximum if self.maximum is not None else value
                return value if low <= value <= high else None
            case Type.ENUM:
                return value if isinstance(value, str) and value in self.choices else None
            case Type.STRING:
                return value if isinstance(value, str) and "\0" not in value else None
            case Type.LIST:
                if not isinstance(value, list | tuple):
                    return None
                # Devices may be written as numbers, as the reference's file does.
                items = [str(item) if isinstance(item, int) and not isinstance(item, bool) else item for item in value]
                return tuple(items) if all(isinstance(item, str) for item in items) else None
            case Type.SIZE | Type.DURATION:
                if not isinstance(value, str):
                    return None
                if value in self.words:
                    return value
                try:
                    quantity = (parse_size if self.type is Type.SIZE else parse_duration)(value)
                except ValueError:
                    return None
                return value if quantity >= (self.minimum or 0) else None


def _too_large(kind: Type, value: object) -> str:
    """Where the form of a size or duration is right."""
    try:
        if isinstance(value, str) and kind in (Type.SIZE, Type.DURATION):
            (parse_size if kind is Type.SIZE else parse_duration)(value)
    except TooLargeError as error:
        return str(error)
    except ValueError:
        pass
    return ""


def _bool(key: str, default: bool, title: str, text: str, **more: object) -> Definition:
    return Definition(key, Type.BOOL, default, title, text, **more)  # type: ignore[arg-type]


def _int(key: str, default: int, title: str, text: str, minimum: int, maximum: int, **more: object) -> Definition:
    return Definition(key, Type.INT, default, title, text, minimum=minimum, maximum=maximum, **more)  # type: ignore[arg-type]


def _enum(key: str, default: str, choices: tuple[str, ...], title: str, text: str, **more: object) -> Definition:
    return Definition(key, Type.ENUM, default, title, text, choices=choices, **more)  # type: ignore[arg-type]


def _old(key: str, type_: Type, default: Value, replacement: str) -> Definition:
    return Definition(key, type_, default, key, f"Old key, ignored: {replacement}.", replacement=replacement)


_MANY: Final = 1 << 20
NO_EFFECT: Final = "No effect in this version."
"""How the help of an inert setting ends, as clients see it."""
BUDGET_KEY: Final = "memory.total_budget"
WORKERS_KEY: Final = "gpus.gpu_workers_per_device"
PIPELINE_KEYS: Final = ("pipeline.prestage", "pipeline.double_buffer", "pipeline.evaluate", "srs.residency")
"""What a device process takes anew for every partition."""
AT_ONCE_KEYS: Final = ("pipeline.enabled", "pipeline.max_gpu_queue_depth")
"""What keeps workers of a device without a partition, see ``most_at_once``."""

TABLE: Final[tuple[Definition, ...]] = (
    Definition(
        "daemon.listen", Type.STRING, "127.0.0.1:9820", "Address", "Where gRPC is served: host:port or unix:///path."
    ),
    Definition(
        "daemon.status_listen",
        Type.STRING,
        "127.0.0.1:9821",
        "Status address",
        "Where /status, /metrics and /healthz are served over HTTP; empty: nowhere.",
    ),
    Definition(
        "daemon.tls_cert", Type.STRING, "", "TLS certificate", "PEM file; needed for addresses beyond this machine."
    ),
    Definition("daemon.tls_key", Type.STRING, "", "TLS key", "PEM file of the certificate's key."),
    Definition("daemon.token_file", Type.STRING, "", "Token file", "File with the token that clients must send."),
    Definition(
        "daemon.allowed_paths",
        Type.LIST,
        (),
        "Allowed folders",
        "Folders from which keys and witnesses may be opened by path; empty: your home folder and srs.param_cache.",
    ),
    Definition(
        BUDGET_KEY,
        Type.SIZE,
        "auto",
        "Memory budget",
        "Host memory for what proofs prepare and for page-locked copies of keys, shared evenly by the devices, whose "
        "processes start anew with it when they are idle; auto: the machine's or container's memory minus the margin.",
        words=("auto",),
        minimum=1 << 20,
        live=True,
    ),
    Definition(
        "memory.safety_margin",
        Type.SIZE,
        "5GiB",
        "Safety margin",
        "Host memory left to others where the budget is auto; half of the memory at most.",
        live=True,
    ),
    Definition(
        "memory.eviction_min_idle",
        Type.DURATION,
        "5m",
        "Idle time before eviction",
        "A loaded key, or its page-locked copy, is dropped for another key only after this long without use; the needs "
        "of proofs come first.",
        live=True,
    ),
    Definition(
        "gpus.devices",
        Type.LIST,
        (),
        "Devices",
        "Devices in use: numbers of GPUs as CUDA counts, cuda:N, UUIDs, PCI bus ids, cpu; empty: all GPUs, or cpu.",
    ),
    _int(
        "gpus.gpu_threads",
        0,
        "Host threads",
        "Threads of the CPU for the host's part of one device's proofs, its workers together; 0: all. A device takes a "
        "change when it has nothing to do: its process starts anew.",
        0,
        4096,
        live=True,
    ),
    _int(
        WORKERS_KEY,
        2,
        "Workers per device",
        "Threads that prepare and finish proofs for one device; kernels of one device take turns.",
        1,
        8,
        live=True,
    ),
    _int(
        "scheduler.max_batch_size",
        1,
        "Batch size",
        "Partitions of one circuit that a worker takes one after another, so that key and tables stay where they are; "
        "1: no batches.",
        1,
        _MANY,
        live=True,
    ),
    _int(
        "scheduler.max_batch_wait_ms",
        10000,
        "Batch wait",
        "Milliseconds that a job waits for others of its circuit to fill a batch; critical jobs never do.",
        0,
        10**9,
        live=True,
    ),
    _bool(
        "scheduler.sort_by_type",
        True,
        "Sort by type",
        "Run waiting partitions of one circuit one after another, within one priority; later jobs do not join in.",
        live=True,
    ),
    Definition(
        "scheduler.aging",
        Type.DURATION,
        "1m",
        "Aging",
        "After each such time of waiting a job counts as one priority higher, up to high; 0: never.",
        live=True,
    ),
    _int(
        "synthesis.threads",
        0,
        "Synthesis threads",
        "Threads of the CPU for evaluating one partition on the host; 0: all. A device takes a change when it has "
        "nothing to do: its process starts anew.",
        0,
        4096,
        live=True,
    ),
    _bool(
        "pipeline.enabled",
        True,
        "Pipeline",
        "Prepare partitions while others run; off: one partition at a time on each device, whatever its workers.",
        live=True,
    ),
    _int(
        "pipeline.synthesis_lookahead",
        1,
        "Look-ahead",
        "Partitions evaluated in advance. Not used: each worker beyond the one that has the device prepares a "
        "partition, so gpus.gpu_workers_per_device says how many.",
        0,
        _MANY,
        inert=True,
    ),
    _int(
        "pipeline.synthesis_concurrency",
        1,
        "Evaluations at once",
        "Proofs evaluated at once. Not used: partitions are evaluated each on its own, whatever proof they belong to; "
        "pipeline.max_parallel_synthesis limits them.",
        1,
        _MANY,
        inert=True,
    ),
    _int(
        "pipeline.max_parallel_synthesis",
        18,
        "Partitions at once",
        "Partitions that are being read and evaluated at once, on all devices together.",
        1,
        _MANY,
        live=True,
    ),
    _int(
        "pipeline.slot_size",
        0,
        "Slot size",
        "Partitions in one slot. Not used: partitions go to workers one by one.",
        0,
        _MANY,
        inert=True,
    ),
    _int(
        "pipeline.max_gpu_queue_depth",
        0,
        "Device queue",
        "Partitions that wait, ready or being prepared, while one has the device; 0: as many as there are other "
        "workers.",
        0,
        _MANY,
        live=True,
    ),
    _enum(
        "pipeline.prestage",
        "ahead",
        ("off", "locked", "ahead"),
        "Pre-staging",
        "off: pageable upload while the device is held. locked: page-locked upload while it is held. "
        "ahead: page-locked upload before it is held, where the memory plan admits it.",
        live=True,
    ),
    _bool(
        "pipeline.double_buffer",
        True,
        "Double buffering",
        "Sum the results of one MSM batch while the next one runs; off: wait after each batch.",
        live=True,
    ),
    _enum(
        "pipeline.evaluate",
        "auto",
        ("auto", "host", "device"),
        "Evaluation",
        "host: a, b, c are computed by the CPU and travel. "
        "device: the matrices stay on the device, only the witness travels.",
        live=True,
    ),
    Definition(
        "srs.param_cache",
        Type.STRING,
        "/data/zk/params",
        "Parameter folder",
        "Where Filecoin's .params files lie; the engine takes jobs with zkey files only, `cuzk prove` takes both.",
    ),
    _enum(
        "srs.residency",
        "auto",
        ("auto", "host", "device"),
        "Key residency",
        "host: the key is page-locked and streamed. device: it stays in the device's memory when it fits.",
        live=True,
    ),
    Definition(
        "cpu.arena",
        Type.SIZE,
        "auto",
        "CPU memory limit",
        "Memory that proofs on the CPU device may use; auto: from the machine's or container's memory.",
        words=("auto",),
        minimum=1 << 20,
        live=True,
    ),
    Definition(
        "jobs.retention",
        Type.DURATION,
        "7d",
        "Keep finished jobs",
        "How long a finished job and its proof are kept.",
        live=True,
    ),
    _int(
        "jobs.keep_finished",
        10000,
        "Finished jobs kept",
        "The oldest finished jobs beyond this number are dropped before their time.",
        1,
        10**7,
        live=True,
    ),
    _enum(
        "logging.level",
        "info",
        ("debug", "info", "warning", "error"),
        "Log level",
        "Least level that is logged.",
        live=True,
    ),
    _enum("logging.format", "text", ("text", "json"), "Log format", "Form of a line in the log file.", live=True),
    _old("memory.pinned_budget", Type.SIZE, "0", "memory.total_budget covers it"),
    _old("memory.working_memory_budget", Type.SIZE, "0", "memory.total_budget covers it"),
    _old("synthesis.partition_workers", Type.INT, 0, "pipeline.max_parallel_synthesis covers it"),
    _old("srs.preload", Type.LIST, (), "call PreloadSRS, or submit a first proof"),
)

_BY_KEY: Final = {definition.key: definition for definition in TABLE}
_CURRENT: Final = tuple(definition.key for definition in TABLE if definition.replacement is None)


def definition(key: str) -> Definition:
    """The setting ``key``. Raises SettingError that names the nearest one."""
    found = _BY_KEY.get(key)
    if found is None:
        raise SettingError(f"unknown setting {key!r}{nearest(key, _CURRENT)}")
    return found


def nearest(word: str, known: Iterable[str]) -> str:
    """``; did you mean …?`` where something known is near, else nothing."""
    names = list(known)
    section, _, last = word.rpartition(".")
    close = [name for name in names if "." in name and name.rpartition(".")[2] == last]  # in the wrong section
    close = close or difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if not close and not section:  # without one
        lasts = {name.rpartition(".")[2]: name for name in names}
        close = [lasts[found] for found in difflib.get_close_matches(word, lasts, n=1, cutoff=0.6)]
    return f"; did you mean {close[0]!r}?" if close else ""


def value_text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{item}"' for item in value) + "]"
    return str(value)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, str) else str(value)


def most_at_once(values: Mapping[str, Value]) -> int:
    """Partitions that one device has at the same time at most, of all settings or of AT_ONCE_KEYS; 0 for as many as it
    has workers."""
    depth = values["pipeline.max_gpu_queue_depth"]
    assert isinstance(depth, int)
    return (depth + 1 if depth else 0) if values["pipeline.enabled"] else 1
