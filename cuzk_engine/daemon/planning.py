"""The answer to Control.Plan: what proofs of a circuit would need on a device, with settings as they are or as they
might be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cuzk_engine.client.types import MemoryPlanInfo, PlanChoice
from cuzk_engine.daemon.device_handle import DeviceAwayError
from cuzk_engine.daemon.refusal import Reason, RefusedError
from cuzk_engine.errors import SettingError
from cuzk_engine.process_options import pipeline_texts
from cuzk_engine.settings import AT_ONCE_KEYS, PIPELINE_KEYS, WORKERS_KEY, definition, most_at_once, value_text

if TYPE_CHECKING:
    from cuzk_engine.config import Settings
    from cuzk_engine.daemon.device_handle import DeviceHandle
    from cuzk_engine.daemon.supervisor import Supervisor


async def plan(supervisor: Supervisor, request: Any) -> MemoryPlanInfo:
    """``request``: a PlanRequest. Raises CuzkError."""
    if request.circuit_id:
        path = (await supervisor.circuits.find(request.circuit_id)).info.key_path
    elif not request.key_path:
        raise RefusedError(Reason.INVALID_ARGUMENT, "a plan needs circuit_id or key_path")
    else:
        path = supervisor.allowed.check(request.key_path)
    device = _device(supervisor, request.device)
    changes = [
        (change.key, change.value)
        for change in request.settings
        if not change.device or supervisor.devices.find(change.device) is device
    ]
    texts, workers = _as_if(supervisor.settings, request.workers or device.workers, changes)
    try:
        document = await device.call("plan", path=path, settings=texts, workers=workers)
    except DeviceAwayError as error:
        reason = Reason.FAILED_PRECONDITION if device.has_failed else Reason.UNAVAILABLE
        raise RefusedError(reason, str(error)) from error
    return from_document({**document, "device": device.id})


def _device(supervisor: Supervisor, name: str) -> DeviceHandle:
    if name not in ("", "auto"):
        device = supervisor.devices.find(name)
        if device is None:
            raise RefusedError(Reason.INVALID_ARGUMENT, f"device {name!r} is not in use by this engine")
        return device
    return next((device for device in supervisor.devices if device.is_ready), supervisor.devices[0])


def _as_if(settings: Settings, workers: int, changes: Iterable[tuple[str, str]]) -> tuple[dict[str, str], int]:
    """The pipeline's settings with changes, and how many of the workers have a partition at the same time. Raises
    SettingError for a change that is wrong or that no plan depends on."""
    texts = pipeline_texts(settings)
    limits = {key: settings.values[key] for key in AT_ONCE_KEYS}
    for key, text in changes:
        value = definition(key).parse(text)
        if key == WORKERS_KEY:
            workers = int(text)
        elif key in PIPELINE_KEYS:
            texts[key] = value_text(value)
        elif key in AT_ONCE_KEYS:
            limits[key] = value
        else:
            known = ", ".join((*PIPELINE_KEYS, *AT_ONCE_KEYS, WORKERS_KEY))
            raise SettingError(f"{key} makes no difference to a plan; {known} do")
    definition(WORKERS_KEY).check(workers)
    return texts, min(workers, most_at_once(limits) or workers)


def from_document(document: dict[str, Any]) -> MemoryPlanInfo:
    """What a device process answered."""
    choices = tuple(PlanChoice(**choice) for choice in document["choices"])
    return MemoryPlanInfo(**{**document, "choices": choices})
