"""The ``TIMELINE,…`` lines that operators of the reference system grep, made from the spans of device processes.

``TIMELINE,<ms since start>,<EVENT>,<job>,<detail>``. A span is known when it has ended, so a pair of lines comes at
that moment, each with its own time. A job that fails writes no further line. Lines of a job with several partitions say
which one they are of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cuzk_engine.daemon.log import DaemonLog
from cuzk_engine.daemon.records import CIRCUIT_KIND
from cuzk_engine.events import Kind, Span
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.telemetry.columns import decode_spans

_KINDS: Final = frozenset({Kind.EVALUATE, Kind.LOCK_WAIT, Kind.LOCK_HELD})


class Timeline:
    """``find``: what a job is called in the lines and how many partitions it has, or None for one that is not
    known."""

    def __init__(self, daemon_log: DaemonLog, find: Callable[[str], tuple[str, int] | None]) -> None:
        self._log = daemon_log
        self._find = find

    def spans(self, batch: pb.TelemetryBatch) -> None:
        """Writes the lines that a batch of spans gives."""
        if not batch.HasField("spans") or not _KINDS.intersection(batch.strings):
            return
        for span in decode_spans(batch.spans, list(batch.strings)):
            if span.kind in _KINDS and span.job:
                found = self._find(span.job)
                if found is not None:
                    self._lines(span, found[0], f"partition={span.partition}" if found[1] > 1 else "")

    def _lines(self, span: Span, name: str, part: str) -> None:
        worker = f"worker={span.worker}" + (f",{part}" if part else "")
        took = (span.end_ns - span.start_ns) // 10**6
        match span.kind:
            case Kind.EVALUATE:
                self._log.timeline("SYNTH_START", name, part or f"kind={CIRCUIT_KIND}", span.start_ns)
                self._log.timeline("SYNTH_END", name, (f"{part}," if part else "") + f"synth_ms={took}", span.end_ns)
            case Kind.LOCK_WAIT:
                self._log.timeline("GPU_QUEUE", name, part or "monolithic", span.start_ns)
                self._log.timeline("GPU_PICKUP", name, worker, span.end_ns)
            case Kind.LOCK_HELD:
                self._log.timeline("GPU_START", name, worker, span.start_ns)
                self._log.timeline("GPU_END", name, f"{worker},gpu_ms={took}", span.end_ns)
