"""Spans that come as columns become the same rows as those that come one by one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cuzk_engine.client.convert import update_from_wire
from cuzk_engine.events import EventBatch, Span
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.telemetry.columns import encode_events
from cuzk_gui.models.digest import Names, digests
from tests.gui import prover

i64, i32 = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)
LANES = ("lock", "compute", "h2d", "d2h", "host:0", "host:1", "")
KINDS = ("lock.wait", "lock.held", "ntt", "msm.accumulate", "upload.abc", "download.result", "host.verify", "srs", "?")
spans = st.builds(
    Span,
    i64,
    i64,
    st.sampled_from(("cpu", "cuda:0")),
    st.sampled_from(LANES),
    st.sampled_from(KINDS),
    st.sampled_from(("", "a", "b")),
    i32,
    st.one_of(st.integers(-2, 3), i32),
    i64,
    st.sampled_from((None, True, False)),
)


def flat(batch: pb.TelemetryBatch, chunk: int, *, columns: bool) -> list[tuple[object, ...]]:
    names = Names()
    found = []
    for digest in digests(update_from_wire(batch, columns=columns), names, chunk):
        for lane, rows in digest.spans.items():
            for i in range(len(rows)):
                values = [getattr(rows, name)[i].item() for name in rows.__slots__ if name not in ("kind", "job")]
                texts = names.kinds.text(rows.kind[i]), names.jobs.text(rows.job[i])
                found.append((lane, *values, *texts, *(getattr(rows, name).dtype for name in rows.__slots__)))
    return found


@given(st.lists(spans, max_size=40), st.integers(1, 50))
@example([Span(0, 0, "cpu", "lock", "lock.held", "", 0, -(2**31), 0, None)], 1)
def test_columns_and_rows_are_the_same(events: list[Span], chunk: int) -> None:
    batch = encode_events(replace(EventBatch.empty(), spans=events))
    assert flat(batch, chunk, columns=True) == flat(batch, chunk, columns=False)


def test_a_partition() -> None:
    batch = encode_events(prover.proof_events(10**9, 10**9, 1, "job", scale=5))
    rows = flat(batch, 30, columns=True)
    assert len(rows) == len(batch.spans.start_ns) // 8 > 80
    assert rows == flat(batch, 30, columns=False)


@pytest.mark.parametrize("name", ["device", "lane", "kind", "job"])
def test_an_index_without_a_string_is_refused(name: str) -> None:
    batch = encode_events(prover.proof_events(10**9, 10**9, 1, "job"))
    data = np.frombuffer(getattr(batch.spans, name), "<u4").copy()
    data[3] = len(batch.strings)
    setattr(batch.spans, name, data.tobytes())
    with pytest.raises(ValueError, match="names string"):
        update_from_wire(batch, columns=True)


def test_columns_of_different_lengths_are_refused() -> None:
    batch = encode_events(prover.proof_events(10**9, 10**9, 1, "job"))
    batch.spans.worker = batch.spans.worker[:-4]
    with pytest.raises(ValueError, match="expected rows"):
        update_from_wire(batch, columns=True)
