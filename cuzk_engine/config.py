"""The configuration file, and the settings in force: defaults, file, environment, command line, changes while
running.
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from cuzk_engine import paths
from cuzk_engine.errors import CuzkError, SettingError
from cuzk_engine.settings import TABLE, WORKERS_KEY, Value, definition, nearest, value_text

REFERENCE_PATH: Final = Path("/data/zk/cuzk.toml")
DEVICES_TABLE: Final = "devices"

COMMON: Final = "default"
"""The text of a device's own value that drops it."""

FROM_DEFAULT: Final = "default"
FROM_FILE: Final = "file"
FROM_ENVIRONMENT: Final = "environment"
FROM_COMMAND_LINE: Final = "command line"
FROM_RUNNING: Final = "changed while running"

# Variables of the reference system that operators still set, and what becomes of them here.
_FOREIGN_VARIABLES: Final = {
    "BELLMAN_CUSTOM_GPU": "ignored: cards are told apart by what they report, no list is needed",
    "RUST_GPU_TOOLS_CUSTOM_GPU": "ignored: cards are told apart by what they report, no list is needed",
    "BELLMAN_CPU_UTILIZATION": "ignored: the host's and the device's share are not mixed here",
    "BELLMAN_NO_GPU": 'ignored: set gpus.devices = ["cpu"] to leave the cards alone',
    "BELLMAN_WORKING_MEMORY": "ignored: memory.safety_margin is left to others",
}


@dataclass(frozen=True, slots=True)
class Change:
    """A setting that got another value; ``device`` "" means all."""

    key: str
    value: Value
    device: str = ""

    @property
    def text(self) -> str:
        """For people: ``pre-staging → ahead``."""
        title = definition(self.key).title
        lowered = title[:1].lower() + title[1:] if title[1:2].islower() else title
        return f"{lowered} → {value_text(self.value)}"


@dataclass(slots=True)
class Settings:
    """The settings in force. Not thread-safe: one thread owns it."""

    values: dict[str, Value] = field(default_factory=lambda: {item.key: item.default for item in TABLE})
    sources: dict[str, str] = field(default_factory=dict)
    device_workers: dict[str, int] = field(default_factory=dict)
    device_sources: dict[str, str] = field(default_factory=dict)
    path: Path | None = None
    notes: list[str] = field(default_factory=list)  # one line each, for the log at start-up

    def text(self, key: str) -> str:
        """The value of a setting of type string, enum, size or duration."""
        value = self.values[key]
        if not isinstance(value, str):
            raise TypeError(f"{key} is no text")
        return value

    def number(self, key: str) -> int:
        value = self.values[key]
        if not isinstance(value, int):
            raise TypeError(f"{key} is no number")
        return value

    def flag(self, key: str) -> bool:
        return bool(self.values[key])

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.values[key]
        if not isinstance(value, tuple):
            raise TypeError(f"{key} is no list")
        return value

    def source(self, key: str) -> str:
        return self.sources.get(key, FROM_DEFAULT)

    def set(self, key: str, value: object, source: str) -> None:
        """Raises SettingError for an unknown key or a wrong value."""
        self.values[key] = definition(key).check(value)
        self.sources[key] = source

    def workers(self, *names: str) -> int:
        """Workers of a device known under ``names`` (UUID, bus id, ordinal, id): its own number or the common one."""
        for name in names:
            if name and name in self.device_workers:
                return self.device_workers[name]
        return self.number(WORKERS_KEY)

    def apply(self, changes: Iterable[tuple[str, str, str]], devices: Iterable[str]) -> list[Change]:
        """Changes (key, text, device) while running, all or none; returns those that made a difference.

        COMMON, for a device, takes its own value away. Raises SettingError naming the setting and what it may be.
        """
        checked: list[Change] = []
        dropped: list[Change] = []
        known = list(devices)
        for key, text, device in changes:
            setting = definition(key)
            if setting.inert:
                raise SettingError(f"{key} is known but has no effect in this version: a change would do nothing")
            if not setting.live:
                raise SettingError(f"{key} cannot change while the daemon runs: set it in the file and restart")
            if device and key != WORKERS_KEY:
                raise SettingError(f"{key} has no value of its own for one device; only {WORKERS_KEY} has")
            if device and device not in known:
                raise SettingError(f"{key}: unknown device {device!r}; known: {', '.join(known) or 'none'}")
            is_drop = bool(device) and text == COMMON
            change = Change(key, self.values[key] if is_drop else setting.parse(text), device)
            (dropped if is_drop else checked).append(change)
        made: list[Change] = []
        for change in checked:
            if change.device:
                if not isinstance(change.value, int):
                    raise TypeError("workers are a number")
                if self.device_workers.get(change.device, self.number(WORKERS_KEY)) != change.value:
                    made.append(change)
                self.device_workers[change.device] = change.value
                self.device_sources[change.device] = FROM_RUNNING
            else:
                if self.values[change.key] != change.value:
                    made.append(change)
                self.values[change.key] = change.value
                self.sources[change.key] = FROM_RUNNING
        for change in dropped:
            common = self.number(WORKERS_KEY)
            self.device_sources.pop(change.device, None)
            if self.device_workers.pop(change.device, common) != common:
                made.append(replace(change, value=common))
        return made

    def rename_devices(self, names: Mapping[str, str]) -> None:
        """``names``: device → the name under which it has a number of workers; from now on its own id."""
        for device, name in names.items():
            self.device_workers[device] = self.device_workers.pop(name)
            self.device_sources[device] = self.device_sources.pop(name, FROM_FILE)

    def fingerprint(self) -> str:
        """A short hash over all values in force."""
        lines = [f"{key}={value_text(value)}" for key, value in sorted(self.values.items())]
        lines += [f"devices.{name}.workers={count}" for name, count in sorted(self.device_workers.items())]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def find_file(explicit: str | os.PathLike[str] | None, environment: Mapping[str, str]) -> Path | None:
    """The configuration file that counts, or None where there is none. Raises SettingError when a named one is
    missing.
    """
    named = explicit or environment.get("CUZK_CONFIG")
    if named:
        path = Path(os.path.expanduser(named)).absolute()
        if not _is_file(path):
            origin = "--config" if explicit else "CUZK_CONFIG"
            raise SettingError(f"{path}: no such configuration file (named by {origin})")
        return path
    return next((path for path in (*_own_file(), REFERENCE_PATH) if _is_file(path)), None)


def _own_file() -> list[Path]:
    """None for a user without a home folder, who can prove all the same."""
    try:
        return [paths.config_dir() / "cuzk.toml"]
    except CuzkError:
        return []


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise SettingError(f"{path}: cannot be looked at: {(error.strerror or str(error)).lower()}") from error


def load(
    explicit: str | os.PathLike[str] | None = None,
    *,
    overrides: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """The settings a daemon starts with. ``overrides`` are texts from the command line. Raises SettingError, one
    line, with file and line.
    """
    variables = os.environ if environment is None else environment
    settings = Settings(path=find_file(explicit, variables))
    if settings.path is not None:
        read_file(settings, settings.path)
    _read_environment(settings, variables)
    for key, text in (overrides or {}).items():
        settings.set(key, definition(key).parse(text), FROM_COMMAND_LINE)
    for key, source in sorted(settings.sources.items()):
        item = definition(key)
        if item.inert and settings.values[key] != item.default:
            settings.notes.append(f"{key} (from the {source}) is known but has no effect in this version")
    return settings


def read_file(settings: Settings, path: Path) -> None:
    """Reads ``path`` into ``settings``. Raises SettingError."""
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:  # what is no TOML, a number of thousands of digits, or too deep
        raise SettingError(f"{path}: is not TOML: {error}") from error
    tables = {item.table for item in TABLE} | {DEVICES_TABLE}
    for table, entries in document.items():
        if table not in tables:
            raise SettingError(f"{_place(path, text, '', table)}: unknown section [{table}]{nearest(table, tables)}")
        if not isinstance(entries, dict):
            raise SettingError(f"{_place(path, text, '', table)}: {table} is a section, written [{table}]")
        if table == DEVICES_TABLE:
            _read_devices(settings, path, text, entries)
            continue
        for name, value in entries.items():
            _read_entry(settings, path, text, table, name, value)


def _read_entry(settings: Settings, path: Path, text: str, table: str, name: str, value: object) -> None:
    key = f"{table}.{name}"
    try:
        item = definition(key)
        if item.replacement is not None:
            settings.notes.append(
                f"{_place(path, text, table, name)}: {key} is an old key and is ignored: {item.replacement}"
            )
            return
        settings.set(key, value, FROM_FILE)
    except SettingError as error:
        raise SettingError(f"{_place(path, text, table, name)}: {error}") from None


def _read_devices(settings: Settings, path: Path, text: str, entries: Mapping[str, object]) -> None:
    workers = definition(WORKERS_KEY)
    for device, body in entries.items():
        where = f'[devices."{device}"]'
        if not isinstance(body, dict):
            raise SettingError(f"{path}: {where} is a section with the key workers")
        for name, value in body.items():
            place = _place(path, text, f'devices."{device}"', name)
            if name != "workers":
                raise SettingError(f"{place}: unknown key {name!r} in {where}{nearest(name, ['workers'])}")
            try:
                count = workers.check(value)
            except SettingError:
                raise SettingError(f"{place}: workers in {where} is {value!r}: expected {workers.expected}") from None
            if isinstance(count, int):
                settings.device_workers[device] = count
                settings.device_sources[device] = FROM_FILE


def _read_environment(settings: Settings, variables: Mapping[str, str]) -> None:
    arena = variables.get("CUZK_CPU_ARENA")
    if arena is not None:
        try:
            settings.set("cpu.arena", arena, FROM_ENVIRONMENT)
        except SettingError as error:
            raise SettingError(f"CUZK_CPU_ARENA in the environment: {error}") from None
        settings.notes.append(f"CUZK_CPU_ARENA={arena}: used as cpu.arena")
    threads = variables.get("CUZK_GPU_THREADS")
    if threads is not None:
        item = definition("gpus.gpu_threads")
        try:
            settings.set(item.key, item.parse(threads), FROM_ENVIRONMENT)
            settings.notes.append(f"CUZK_GPU_THREADS={threads}: used as gpus.gpu_threads")
        except SettingError:
            settings.notes.append(f"CUZK_GPU_THREADS={threads}: invalid, expected {item.expected}; not used")
    if "CUDA_VISIBLE_DEVICES" in variables:
        settings.notes.append(
            f"CUDA_VISIBLE_DEVICES={variables['CUDA_VISIBLE_DEVICES']}: used, limits the cards that are seen"
        )
    for name, fate in _FOREIGN_VARIABLES.items():
        if name in variables:
            settings.notes.append(f"{name}={variables[name]}: {fate}")


def _place(path: Path, text: str, table: str, name: str) -> str:
    """``path:line`` of a key, or of a section's head when ``table`` is empty; only the path where the line is not
    found.
    """
    inside = not table
    bare = re.compile(r'\s*"?' + re.escape(name) + r'"?\s*=')
    section = re.escape(table or name).replace('"', "[\"']?")  # the quotes of a part may be others, or none
    head = re.compile(r"\s*\[+\s*" + section + r"\s*[\].]")
    dotted = re.compile(r"\s*" + re.escape(table) + r"\s*\.\s*" + re.escape(name) + r"\s*=") if table else None
    for number, line in enumerate(text.splitlines(), 1):
        if not table and (head.match(line) or bare.match(line)):
            return f"{path}:{number}"
        if line.lstrip().startswith("["):
            inside = bool(head.match(line))
        if (inside and bare.match(line)) or (dotted and dotted.match(line)):
            return f"{path}:{number}"
    return str(path)
