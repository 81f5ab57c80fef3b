"""Settings of the running engine, with changes that are on their way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cuzk_engine.client import DeviceDescription, SettingChange, SettingInfo

WORKERS: Final = "gpus.gpu_workers_per_device"
PIPELINE: Final = ("pipeline.prestage", "pipeline.double_buffer", "pipeline.evaluate", "srs.residency")
_BESIDE_DEVICES: Final = ("pipeline.", "srs.", "gpus.", "memory.", "cpu.")
_WHY_INERT: Final = {
    "pipeline.prestage": "host and device share one memory, so there is nothing to page-lock or to upload early",
    "pipeline.double_buffer": "a kernel has ended when it returns, so there is nothing to sum meanwhile",
    "pipeline.evaluate": "host and device are the same cores",
    "srs.residency": "the key stays mapped from its file and is read where it lies",
    "gpus.gpu_workers_per_device": "the cores are shared by all workers",
}


def inert_note(key: str, device: DeviceDescription) -> str:
    """That a setting makes no difference on a device; "" when it does make one."""
    if key not in device.inert_settings:
        return ""
    return f"makes no difference on {'the CPU device' if device.kind == 'cpu' else device.id}"


def inert_reason(key: str, device: DeviceDescription) -> str:
    """The note with its reason, one sentence."""
    note = inert_note(key, device)
    why = _WHY_INERT.get(key) if note and device.kind == "cpu" else None
    return f"{note}: {why}" if why else note


class SettingsModel:
    """What the engine said last, and what was asked of it since. A change is pending until the engine states it or
    refuses it."""

    def __init__(self) -> None:
        self._settings: dict[tuple[str, str], SettingInfo] = {}
        self._pending: dict[tuple[str, str], str] = {}
        self.version = 0

    def update(self, settings: Iterable[SettingInfo]) -> None:
        self._settings = {(s.key, s.device): s for s in settings}
        self._pending = {k: v for k, v in self._pending.items() if self._stated(k) != v}
        self.version += 1

    def ask(self, change: SettingChange) -> None:
        self._pending[(change.key, change.device)] = change.value
        self.version += 1

    def settle(self, change: SettingChange) -> None:
        """The engine has answered: what it states holds."""
        self._pending.pop((change.key, change.device), None)
        self.version += 1

    def info(self, key: str, device: str = "") -> SettingInfo | None:
        return self._settings.get((key, device)) or self._settings.get((key, ""))

    def value(self, key: str, device: str = "") -> str | None:
        """What is asked for, else what is stated for the device, else what is stated for all."""
        asked = self._pending.get((key, device))
        return asked if asked is not None else self._stated((key, device))

    def pending(self, key: str, device: str = "") -> bool:
        return (key, device) in self._pending

    def asked(self) -> list[SettingChange]:
        """Changes that are on their way."""
        return [SettingChange(key, value, device) for (key, device), value in self._pending.items()]

    def switches(self) -> list[SettingInfo]:
        """Settings with a form beside the devices: the pipeline's, then others that act on devices and can change
        live."""
        known = [s for key in PIPELINE if (s := self._settings.get((key, ""))) is not None]
        rest = [
            s
            for (key, device), s in sorted(self._settings.items())
            if not device
            and s.live
            and key.startswith(_BESIDE_DEVICES)
            and key not in (*PIPELINE, WORKERS)
            and (s.type == "bool" or s.choices)
        ]
        return known + rest

    def _stated(self, key: tuple[str, str]) -> str | None:
        info = self.info(*key)
        return info.value if info else None
