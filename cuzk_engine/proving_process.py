"""What the settings mean in a process that proves: its device, the host's memory beside it, and how partitions run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from cuzk_engine import native
from cuzk_engine.config import Settings
from cuzk_engine.devices.arena import host_budget
from cuzk_engine.devices.base import Device, DeviceInfo, EventSink
from cuzk_engine.devices.host import HostMemory
from cuzk_engine.devices.select import open_device
from cuzk_engine.pipeline.modes import Evaluation, PipelineSettings, Prestage, Residency
from cuzk_engine.process_options import ProcessOptions

if TYPE_CHECKING:
    from cuzk_engine.devices.cuda.compiling import Progress


class OpenedDevice:
    """A device, and the host's memory that it has its share of. ``threads``: for the host's part of its proofs, 0: as
    many as there are. A context manager: leaving it closes both."""

    def __init__(self, device: Device, host: HostMemory, threads: int) -> None:
        self.device = device
        self.host = host
        self.threads = threads

    @classmethod
    def open(
        cls, name: str, options: ProcessOptions, sink: EventSink | None = None, compiling: Progress | None = None
    ) -> OpenedDevice:
        """``name``: cpu or cuda:N. ``compiling`` hears of a GPU's kernels that have to be compiled. Raises
        CuzkError."""
        threads = options.threads
        if not threads and options.processes > 1:
            threads = max(1, native.library().threads() // options.processes)
        budget = host_budget(options.budget, options.margin, options.processes)
        fixed = budget.source == "memory.total_budget"
        host = HostMemory(budget.nbytes, sink, device=name, threads=threads, fixed=fixed)
        try:
            return cls(open_device(name, sink, options.arena, threads, host, compiling), host, threads)
        except BaseException:
            host.close()
            raise

    def __enter__(self) -> OpenedDevice:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.device.close()
        self.host.close()


def workers_of(settings: Settings, info: DeviceInfo) -> int:
    """Of a device, by any of the names that it may have in the file."""
    return settings.workers(info.uuid, info.bus_id, info.id.removeprefix("cuda:"), info.id)


def pipeline_settings(texts: Mapping[str, str], reduced: int = 0) -> PipelineSettings:
    """``texts``: values of the pipeline's settings. ``reduced``: how many of the modes to leave out."""
    return _settings(
        texts["pipeline.prestage"], texts["pipeline.double_buffer"], texts["pipeline.evaluate"],
        texts["srs.residency"], reduced,
    )  # fmt: skip


@lru_cache(maxsize=64)
def _settings(prestage: str, double_buffer: str, evaluate: str, residency: str, reduced: int) -> PipelineSettings:
    """The same object for the same values: others keep by it what follows from them."""
    return PipelineSettings(
        prestage=Prestage(prestage),
        double_buffer=double_buffer == "true",
        evaluate=Evaluation(evaluate),
        residency=Residency(residency),
        reduced=reduced,
    )
