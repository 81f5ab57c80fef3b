"""The devices of this engine: by any of their names, what their processes are started with, and which keys they have
loaded. What runs on them it does not know."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, overload

from cuzk_engine.config import Settings
from cuzk_engine.daemon.device_handle import DeviceHandle, DeviceListener
from cuzk_engine.daemon.device_names import DeviceNames
from cuzk_engine.daemon.runtime import HostUse, KeyState
from cuzk_engine.errors import DaemonError
from cuzk_engine.process_options import ProcessOptions, pipeline_texts

log = logging.getLogger("cuzk")


class Devices(Sequence[DeviceHandle]):
    """In the order of ``gpus.devices``. Raises SettingError for one that is not there."""

    def __init__(self, settings: Settings, names: DeviceNames, listener: DeviceListener) -> None:
        self._settings = settings
        self._names = names
        self._handles = [
            DeviceHandle(name, self._options, listener, lambda: pipeline_texts(settings), self._workers)
            for name in names.choose(settings.texts("gpus.devices"))
        ]
        settings.rename_devices(names.by_device(settings.device_workers))

    @overload
    def __getitem__(self, index: int) -> DeviceHandle: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[DeviceHandle]: ...
    def __getitem__(self, index: int | slice) -> DeviceHandle | Sequence[DeviceHandle]:
        return self._handles[index]

    def __len__(self) -> int:
        return len(self._handles)

    def id_of(self, name: str) -> str:
        """``cuda:N`` or ``cpu`` for any name of a device; what is none stays as it is."""
        return self._names.resolve(name) or name

    def find(self, name: str) -> DeviceHandle | None:
        """By any of its names."""
        found = self.id_of(name)
        return next((device for device in self._handles if device.id == found), None)

    def facts(self, name: str) -> tuple[int, bool, tuple[str, ...]] | None:
        """Workers, whether it is a GPU, inert settings; None for a device that is not there."""
        device = self.find(name)
        if device is None:
            return None
        return device.workers, device.info.get("kind") != "cpu", tuple(device.info.get("inert_settings", ()))

    @property
    def are_started(self) -> bool:
        """Whether each of them is ready or will not be so soon."""
        return not any(device.is_awaited for device in self._handles)

    # ---- keys ----

    @property
    def loaded_keys(self) -> dict[str, KeyState]:
        """By path, as the device processes last said."""
        states = [state for device in self._handles for state in device.loaded.values()]
        return {state.path: together(state.path, states) for state in states}

    @property
    def host_use(self) -> HostUse:
        """Of all device processes together, as they last said."""
        uses = [device.host for device in self._handles]
        return HostUse(sum(use.pinned for use in uses), sum(use.budget for use in uses))

    async def refresh_keys(self, *devices: DeviceHandle) -> None:
        """Asks the device processes, or some of them, which keys they have loaded."""
        for device in devices or self._handles:
            with contextlib.suppress(DaemonError):
                state = await device.call("keys")
                device.loaded = {key["path"]: KeyState(**key) for key in state["keys"]}
                device.host = HostUse(**state["host"])

    # ---- what an operator should know ----

    def say_why_cpu(self) -> None:
        """Where all cards were asked for and there is none to be used."""
        if why := self._names.why_cpu(self._settings.texts("gpus.devices")):
            log.log(logging.WARNING if self._names.has_cards else logging.INFO, "proofs run on the CPU: %s", why)

    def warn_of_unknown(self) -> None:
        """What a device may be called is known only when it has started."""
        known = {device.id for device in self._handles}
        for name in self._settings.device_workers:
            if name not in known:
                there = ", ".join(device.id for device in self._handles)
                log.warning('[devices."%s"] has no effect: this engine has no such device; there is %s', name, there)

    def _options(self) -> dict[str, Any]:
        return asdict(ProcessOptions.of(self._settings, len(self._handles)))

    def _workers(self, device: DeviceHandle) -> int:
        return self._settings.workers(device.id)


def together(path: str, states: Iterable[KeyState]) -> KeyState:
    """What several processes say of the key at ``path``, as one: in the fastest of their tiers."""
    found = [state for state in states if state.path == path]
    tier = min((state.tier for state in found), key=["device", "hot", "warm"].index)
    in_tier = [state for state in found if state.tier == tier]
    nbytes = max(state.nbytes for state in found) if tier == "warm" else sum(state.nbytes for state in in_tier)
    users = sum(state.users for state in found)
    return KeyState(path, nbytes, tier, users, max(state.last_used_ns for state in found))
