import ctypes
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.events import (
    Allocation,
    EventBatch,
    Finding,
    Gap,
    Holding,
    Incident,
    LogLine,
    Mark,
    OtherProcess,
    Picture,
    Remedy,
    Sample,
    Span,
)
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.telemetry.columns import count_events, decode_events, encode_events

i64 = st.integers(-(2**63), 2**63 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)
text = st.text(max_size=20)
maybe_int, maybe_float = st.none() | i64, st.none() | st.floats(allow_nan=False)
spans = st.builds(Span, i64, i64, text, text, text, text, i32, i32, i64, st.none() | st.booleans())
allocations = st.builds(Allocation, i64, text, i64, text, i32, text)
samples = st.builds(Sample, i64, text, *[maybe_int] * 4, *[maybe_float] * 6)
remedies = st.builds(Remedy, text, text, text, text, maybe_int, maybe_float)
holdings = st.lists(st.builds(Holding, text, i32, text, i64), max_size=3).map(tuple)
pictures = st.builds(
    Picture,
    i64,
    i64,
    holdings,
    holdings,
    st.lists(st.builds(OtherProcess, i64, text, maybe_int), max_size=2).map(tuple),
    text,
    i32,
    st.dictionaries(text, text, max_size=3).map(lambda settings: tuple(sorted(settings.items()))),
    st.lists(remedies, max_size=2).map(tuple),
    i64,
)
incidents = st.builds(Incident, i64, text, text, text, text, maybe_int, maybe_int, st.none() | pictures)
gaps = st.builds(Gap, i64, i64, text, text, text, text, i32)
findings = st.builds(
    Finding,
    i64,
    text,
    text,
    text,
    st.lists(text, max_size=2).map(tuple),
    i64,
    i64,
    st.lists(remedies, max_size=2).map(tuple),
)
batches = st.builds(
    EventBatch,
    st.lists(spans, max_size=5),
    st.lists(samples, max_size=3),
    st.lists(allocations, max_size=5),
    st.lists(st.builds(Mark, i64, text, text, text), max_size=2),
    st.lists(incidents, max_size=2),
    st.lists(st.builds(LogLine, i64, i64, text, text), max_size=2),
    st.lists(gaps, max_size=2),
    st.lists(findings, max_size=2),
    st.integers(0, 2**32),
)


@given(batches)
def test_what_goes_in_comes_out(events: EventBatch) -> None:
    wire = pb.TelemetryBatch.FromString(encode_events(events).SerializeToString())
    assert decode_events(wire) == events
    assert count_events(wire) == len(events)


def test_absent_is_not_zero() -> None:
    events = EventBatch.empty()
    events.samples += [Sample(1, "cpu", memory_used=0), Sample(2, "cpu")]
    zero, absent = decode_events(encode_events(events)).samples
    assert (zero.memory_used, absent.memory_used) == (0, None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("end_ns", b"12345678"),
        ("start_ns", b"123"),
        ("kind", b"\x09\x00\x00\x00" * 2),
        ("pinned", b""),
    ],
)
def test_columns_that_do_not_fit_are_refused(field: str, value: Any) -> None:
    events = EventBatch.empty()
    events.spans += [Span(1, 2, "cpu", "compute", "ntt")] * 2
    wire = encode_events(events)
    setattr(wire.spans, field, value)
    with pytest.raises(ValueError, match="a telemetry column"):
        decode_events(wire)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_a_value_error(data: bytes) -> None:
    columns = pb.SpanColumns(start_ns=data, end_ns=data, device=data)
    try:
        decode_events(pb.TelemetryBatch(spans=columns))
    except ValueError:
        return
    assert data == b""


LENGTHS = """
import ctypes
from pathlib import Path
from cuzk_engine.events import EventBatch, Span
from cuzk_engine.telemetry.columns import encode_events
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
def encode(rows):
    batch = EventBatch.empty()
    batch.spans.extend([Span(1, 2, "cpu", "compute", "ntt")] * rows)
    encode_events(batch).SerializeToString()
for _ in range(20): encode(1100)
ctypes.CDLL(None).malloc_trim(0)
before = resident()
for rows in range(1, 1024): encode(rows)
ctypes.CDLL(None).malloc_trim(0)
print((resident() - before) >> 10)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is not glibc")
def test_batches_of_every_length_leave_no_memory_behind() -> None:
    """Device processes send them for days."""
    command = [sys.executable, "-c", LENGTHS]
    kib = int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)
    assert kib < 700
