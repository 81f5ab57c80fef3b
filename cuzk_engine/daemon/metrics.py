"""Prometheus metrics, made from the same numbers as GetStatus at the moment they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)

if TYPE_CHECKING:
    from cuzk_engine.daemon.supervisor import Supervisor


class Metrics:
    """A registry of its own: nothing of the process's default metrics is in it."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> str:
        """The text exposition format 0.0.4."""
        return generate_latest(self._registry).decode()

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        jobs = self._supervisor.jobs
        totals = jobs.totals
        # A job counts once under the names of proofs, however many it has: clients know them so.
        yield CounterMetricFamily(
            "cuzk_proofs_completed",
            "Jobs whose proofs were delivered; cuzk_partitions_completed_total counts the proofs.",
            value=totals.completed.total(),
        )
        yield CounterMetricFamily("cuzk_proofs_failed", "Jobs that failed.", value=totals.failed.total())
        yield GaugeMetricFamily(
            "cuzk_uptime_seconds", "Seconds since the daemon started.", value=self._supervisor.uptime_seconds
        )
        yield GaugeMetricFamily("cuzk_queue_depth", "Jobs that wait.", value=jobs.queued)
        yield GaugeMetricFamily("cuzk_running_jobs", "Jobs that run.", value=jobs.running)
        completed = GaugeMetricFamily(
            "cuzk_proofs_completed", "Jobs whose proofs were delivered, by kind.", labels=["proof_kind"]
        )
        failed = GaugeMetricFamily("cuzk_proofs_failed", "Jobs that failed, by kind.", labels=["proof_kind"])
        duration = SummaryMetricFamily(
            "cuzk_proof_duration_seconds", "Time of jobs from start to delivery.", labels=["proof_kind"]
        )
        for kind in sorted({*totals.completed, *totals.failed}):
            completed.add_metric([kind], totals.completed[kind])
            failed.add_metric([kind], totals.failed[kind])
            duration.add_metric([kind], totals.completed[kind], totals.seconds[kind])
        yield from (completed, failed, duration)
        yield CounterMetricFamily(
            "cuzk_partitions_completed", "Proofs made: one for each partition of a job.", value=totals.partitions
        )
        retried = CounterMetricFamily(
            "cuzk_partitions_retried",
            "Partitions tried once more: memory was short or can never do on a device, the proof did not verify, the "
            "process died.",
            labels=["reason"],
        )
        for reason, count in sorted(totals.retried.items()):
            retried.add_metric([reason], count)
        yield retried
        yield from self._devices()
        birth = self._supervisor.birth
        yield InfoMetricFamily("cuzk_build", "The running build.", value={"build": birth.build})

    def _devices(self) -> Iterator[Metric]:
        memory = GaugeMetricFamily(
            "cuzk_device_memory_bytes", "Memory of a device in use by proofs.", labels=["device"]
        )
        workers = GaugeMetricFamily("cuzk_device_workers", "Workers of a device.", labels=["device"])
        looks = CounterMetricFamily(
            "cuzk_device_gil_samples", "Looks at the interpreter lock of a device's busy process.", labels=["device"]
        )
        held = CounterMetricFamily(
            "cuzk_device_gil_held_samples", "Looks at which the lock was held.", labels=["device"]
        )
        ratio = GaugeMetricFamily(
            "cuzk_device_gil_wait_ratio",
            "Share of the looks of the last five busy seconds, at least, at which the interpreter lock was held.",
            labels=["device"],
        )
        up = GaugeMetricFamily("cuzk_device_up", "Whether a device is ready.", labels=["device"])
        for device in self._supervisor.devices:
            memory.add_metric([device.id], self._supervisor.hub.memory(device.id))
            workers.add_metric([device.id], device.workers)
            up.add_metric([device.id], int(device.is_ready))
            looks.add_metric([device.id], device.gil.samples)
            held.add_metric([device.id], device.gil.held)
            ratio.add_metric([device.id], device.gil.ratio)
        yield from (memory, workers, up, looks, held, ratio)
