"""The ``TIMELINE,…`` lines that operators of the reference system grep, made from the spans of device processes.

``TIMELINE,<ms since start>,<EVENT>,<job>,<detail>``. A span is known when it has ended, so a pair of lines comes at
that moment, each with its own time. A job that fails writes no further line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cuzk_engine.daemon.log import DaemonLog
from cuzk_engine.daemon.store import CIRCUIT_KIND
from cuzk_engine.events import Kind, Span
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.telemetry.columns import decode_spans

_KINDS: Final = frozenset({Kind.EVALUATE, Kind.LOCK_WAIT, Kind.LOCK_HELD})


class Timeline:
    """``name``: what a job is called in the lines, or None for one that is not known."""

    def __init__(self, daemon_log: DaemonLog, name: Callable[[str], str | None]) -> None:
        self._log = daemon_log
        self._name = name

    def spans(self, batch: pb.TelemetryBatch) -> None:
        """Writes the lines that a batch of spans gives."""
        if not batch.HasField("spans") or not _KINDS.intersection(batch.strings):
            return
        for span in decode_spans(batch.spans, list(batch.strings)):
            if span.kind in _KINDS and span.job:
                name = self._name(span.job)
                if name is not None:
                    self._lines(span, name)

    def _lines(self, span: Span, name: str) -> None:
        worker = f"worker={span.worker}"
        took = (span.end_ns - span.start_ns) // 10**6
        match span.kind:
            case Kind.EVALUATE:
                self._log.timeline("SYNTH_START", name, f"kind={CIRCUIT_KIND}", span.start_ns)
                self._log.timeline("SYNTH_END", name, f"synth_ms={took}", span.end_ns)
            case Kind.LOCK_WAIT:
                self._log.timeline("GPU_QUEUE", name, "monolithic", span.start_ns)
                self._log.timeline("GPU_PICKUP", name, worker, span.end_ns)
            case Kind.LOCK_HELD:
                self._log.timeline("GPU_START", name, worker, span.start_ns)
                self._log.timeline("GPU_END", name, f"{worker},gpu_ms={took}", span.end_ns)
