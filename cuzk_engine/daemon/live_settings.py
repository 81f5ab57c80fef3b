"""The settings while the daemon runs: what clients see of them, and what a change of one does.

It knows which part of the daemon each setting is for; who is told of a change it does not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from cuzk_engine.client.types import SettingInfo
from cuzk_engine.config import Change, Settings
from cuzk_engine.daemon.devices import Devices
from cuzk_engine.daemon.dispatcher import Dispatcher
from cuzk_engine.daemon.log import DaemonLog
from cuzk_engine.daemon.scheduler import Policy
from cuzk_engine.devices.arena import check_budget
from cuzk_engine.errors import SettingError
from cuzk_engine.process_options import PROCESS_KEYS
from cuzk_engine.settings import BUDGET_KEY, NO_EFFECT, PIPELINE_KEYS, TABLE, WORKERS_KEY, definition, value_text

log = logging.getLogger("cuzk")

_PLAN_KEYS: Final = frozenset({*PIPELINE_KEYS, "cpu.arena", BUDGET_KEY, "memory.safety_margin"})


class LiveSettings:
    def __init__(self, settings: Settings, devices: Devices, dispatcher: Dispatcher, daemon_log: DaemonLog) -> None:
        self._settings = settings
        self._devices = devices
        self._dispatcher = dispatcher
        self._log = daemon_log

    def infos(self) -> list[SettingInfo]:
        """All settings but old ones; then the workers of devices that have a number of their own."""
        infos = [self._info(item.key) for item in TABLE if item.replacement is None]
        for device, count in self._settings.device_workers.items():
            infos.append(self._info(WORKERS_KEY, device, count))
        return infos

    def apply(self, changes: Iterable[tuple[str, str, str]]) -> list[Change]:
        """Changes (key, text, any name of a device), all or none; returns those that made a difference. Raises
        SettingError, also for what this machine has not."""
        named = [(key, value, self._devices.id_of(device)) for key, value, device in changes]
        self._check_budget(named)
        made = self._settings.apply(named, [device.id for device in self._devices])
        for change in made:
            log.info("setting changed: %s%s", change.text, f" on {change.device}" if change.device else "")
            self._take_effect(change)
        return made

    def warn(self) -> None:
        """What an operator should know of the file's values; a file may come from another machine, and is obeyed as
        far as it goes."""
        try:
            check_budget(self._settings.text(BUDGET_KEY))
        except SettingError as error:
            log.warning("%s; what there is is used", error)

    def _check_budget(self, changes: Iterable[tuple[str, str, str]]) -> None:
        for key, text, _ in changes:
            if key == BUDGET_KEY and text != self._settings.values[key]:
                check_budget(value_text(definition(key).parse(text)), len(self._devices))

    def _take_effect(self, change: Change) -> None:
        if change.key.startswith(("scheduler.", "pipeline.")):
            self._dispatcher.set_policy(Policy.of(self._settings))
        if change.key in _PLAN_KEYS:
            self._dispatcher.forget_fits()
        match change.key:
            case "logging.level":
                self._log.set_level(str(change.value))
            case "logging.format":
                self._log.set_form(str(change.value))
            case key if key in PROCESS_KEYS:
                for device in self._devices:
                    if key != "cpu.arena" or device.id == "cpu":
                        device.renew()
                        device.renew_when_idle(self._dispatcher.is_busy(device.id))
            case "gpus.gpu_workers_per_device":
                for device in self._devices:
                    device.workers_changed()

    def _info(self, key: str, device: str = "", count: int | None = None) -> SettingInfo:
        item = definition(key)
        value = self._settings.values[key] if count is None else count
        source = self._settings.source(key) if not device else self._settings.device_sources.get(device, "file")
        return SettingInfo(
            key=key,
            value=value_text(value),
            default=value_text(item.default),
            title=item.title,
            help=item.help + (f" {NO_EFFECT}" if item.inert else ""),
            type=item.type,
            choices=item.choices,
            minimum=item.minimum,
            maximum=item.maximum,
            live=item.live,
            source=source,
            device=device,
        )
