"""The memory plan of what each device proves, kept for the diagnosis: a finding shall not recommend what does not
fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from cuzk_engine.client.types import MemoryPlanInfo
from cuzk_engine.daemon.planning import from_document
from cuzk_engine.errors import CuzkError

if TYPE_CHECKING:
    from cuzk_engine.daemon.device_handle import DeviceHandle


class LivePlans:
    """Works on the event loop. ``settings``: the pipeline's as texts, as they are now."""

    def __init__(self, settings: Callable[[], Mapping[str, str]]) -> None:
        self._settings = settings
        self._plans: dict[str, MemoryPlanInfo] = {}
        self._asking = False

    def of(self, device: str) -> MemoryPlanInfo | None:
        """With the key that was used last there; None where none is known: nothing was proved yet, or the plan is
        off."""
        return self._plans.get(device)

    async def refresh(self, devices: Iterable[DeviceHandle]) -> None:
        """Asks again: settings and other programs' memory change. Does nothing while it is under way."""
        if self._asking:
            return
        self._asking = True
        try:
            for device in devices:
                plan = await self._ask(device)
                if plan is None:
                    self._plans.pop(device.id, None)
                else:
                    self._plans[device.id] = plan
        finally:
            self._asking = False

    async def _ask(self, device: DeviceHandle) -> MemoryPlanInfo | None:
        key = max(device.loaded.values(), key=lambda state: state.last_used_ns, default=None)
        if key is None or not device.is_ready:
            return None
        try:
            document = await device.call("plan", path=key.path, settings=dict(self._settings()), workers=device.workers)
        except CuzkError:  # it died, the key has gone, or there is no plan: nothing is known
            return None
        return from_document({**document, "device": device.id})
