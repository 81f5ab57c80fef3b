"""The settings of the configuration, for commands that work in their own process."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cuzk_engine.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuzk_engine.config import Settings
    from cuzk_engine.devices.base import DeviceInfo
    from cuzk_engine.devices.cuda.compiling import Progress
    from cuzk_engine.proving_process import OpenedDevice
    from cuzk_engine.runner import PipelineSettings


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", default="", help="configuration file")


def check_option(args: argparse.Namespace) -> None:
    """Raises UsageError where an engine proves: it has its own."""
    if args.config and args.daemon is not None:
        raise UsageError("--config: is for proofs in this process; an engine (--daemon) has its own configuration")


def load(args: argparse.Namespace) -> Settings:
    """Raises SettingError, one line, as the engine does."""
    from cuzk_engine import config

    return config.load(args.config or None)


def open_device(settings: Settings, name: str = "auto", compiling: Progress | None = None) -> OpenedDevice:
    """For this process alone. ``auto``: the first device of gpus.devices. Raises UsageError, CuzkError."""
    from cuzk_engine.process_options import ProcessOptions
    from cuzk_engine.proving_process import OpenedDevice

    return OpenedDevice.open(device_name(settings, name), ProcessOptions.of(settings), compiling=compiling)


def open_as_engine(settings: Settings, name: str = "auto") -> OpenedDevice:
    """As one of the engine's devices, which share the host between them. Raises UsageError, CuzkError."""
    from cuzk_engine.devices.select import resolve_name
    from cuzk_engine.errors import SettingError
    from cuzk_engine.process_options import ProcessOptions
    from cuzk_engine.proving_process import OpenedDevice

    if _is_configured(settings, name):
        chosen = _devices(settings)
        name = chosen[0]
    else:
        name = resolve_name(name)
        try:
            chosen = _devices(settings)
        except SettingError:  # of another machine's devices: the question is about this one
            chosen = []
    processes = len(chosen) if name in chosen else 1
    return OpenedDevice.open(name, ProcessOptions.of(settings, processes))


def device_name(settings: Settings, name: str) -> str:
    """``cpu`` or ``cuda:N``. Raises UsageError, CuzkError."""
    from cuzk_engine.devices.select import resolve_name

    return _devices(settings)[0] if _is_configured(settings, name) else resolve_name(name)


def _is_configured(settings: Settings, name: str) -> bool:
    """Whether gpus.devices says which device is meant."""
    return name == "auto" and settings.source("gpus.devices") != "default"


def _devices(settings: Settings) -> Sequence[str]:
    """Those of an engine with these settings; reads the driver. Raises SettingError."""
    from cuzk_engine.daemon.device_names import DeviceNames

    return DeviceNames.of_machine().choose(settings.texts("gpus.devices"))


def pipeline_settings(settings: Settings) -> PipelineSettings:
    from cuzk_engine import proving_process
    from cuzk_engine.process_options import pipeline_texts

    return proving_process.pipeline_settings(pipeline_texts(settings))


def workers(settings: Settings, info: DeviceInfo) -> int:
    from cuzk_engine.proving_process import workers_of

    return workers_of(settings, info)


def origin(settings: Settings, keys: tuple[str, ...]) -> str:
    """Which of ``keys`` the file sets, and which file; "" for none."""
    named = [key for key in keys if settings.source(key) == "file"]
    return f"{', '.join(named)} from {settings.path}" if named else ""
