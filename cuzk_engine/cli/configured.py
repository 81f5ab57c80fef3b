"""The settings of the configuration, for commands that work in their own process."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuzk_engine.config import Settings
    from cuzk_engine.devices.base import DeviceInfo
    from cuzk_engine.runner import PipelineSettings


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", default="", help="configuration file")


def load(args: argparse.Namespace) -> Settings:
    """Raises SettingError, one line, as the engine does."""
    from cuzk_engine import config

    return config.load(args.config or None)


def pipeline_settings(settings: Settings) -> PipelineSettings:
    from cuzk_engine.runner import Evaluation, PipelineSettings, Prestage, Residency

    return PipelineSettings(
        Prestage(settings.text("pipeline.prestage")),
        settings.flag("pipeline.double_buffer"),
        Evaluation(settings.text("pipeline.evaluate")),
        Residency(settings.text("srs.residency")),
    )


def workers(settings: Settings, info: DeviceInfo) -> int:
    """Of a device, by any of the names that it may have in the file."""
    return settings.workers(info.uuid, info.bus_id, info.id.removeprefix("cuda:"), info.id)


def origin(settings: Settings, keys: tuple[str, ...]) -> str:
    """Which of ``keys`` the file sets, and which file; "" for none."""
    named = [key for key in keys if settings.source(key) == "file"]
    return f"{', '.join(named)} from {settings.path}" if named else ""
