"""Results that are fetched behind their sums: rows that one sum at a time writes to, and what is done without them."""

from __future__ import annotations

import contextlib
import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cuzk_engine.devices.base import CancelToken, Msm, Owner
from cuzk_engine.errors import OutOfDeviceMemoryError
from cuzk_engine.events import Kind, Lane, Purpose, Span
from tests.devices.cuda.conftest import Bench
from tests.devices.cuda.test_sums_logic import BN254, ME, Sums, some_points


def rows_of(block: Any) -> Any:
    module = importlib.import_module("cuzk_engine.devices.cuda.results")
    return module.Rows(contextlib.nullcontext(), block)


def staging(nbytes: int, *, pinned: bool = True) -> Any:
    return SimpleNamespace(data=np.zeros(nbytes, np.uint8), pinned=pinned, free=lambda: None)


def test_a_row_is_lent_until_it_is_forgotten(bench: Bench) -> None:
    rows = rows_of(staging)
    lent = [rows.take(192) for _ in range(64)]
    assert len({row.address for row in lent}) == 64
    assert rows.take(96) is None
    address = lent[5].address
    lent[5].view[:2] = b"ab"
    kept = lent.pop(5)
    assert rows.take(96) is None
    del kept
    assert rows.take(96).address == address
    rows.close()


def test_what_has_no_row(bench: Bench) -> None:
    assert rows_of(staging).take(193) is None
    assert rows_of(lambda nbytes: staging(nbytes, pinned=False)).take(64) is None

    asked = []

    def refuse(nbytes: int) -> Any:
        asked.append(nbytes)
        raise OutOfDeviceMemoryError("host", Purpose.CONTEXT, nbytes, 0, 0)

    rows = rows_of(refuse)
    assert [rows.take(64) for _ in range(3)] == [None] * 3
    assert len(asked) == 1
    rows.close()


def test_without_page_locked_memory_results_are_downloaded(bench: Bench, expected_logs: Any) -> None:
    expected_logs("could not be page-locked")
    bench.runtime.most_locked = 0
    sums = Sums(bench)
    for _ in range(3):
        sums.launch(some_points(BN254, 64))
    sums.check()
    spans = [e for e in bench.events if isinstance(e, Span) and e.lane == Lane.D2H]
    assert [(e.kind, e.pinned) for e in spans] == [(Kind.DOWNLOAD_RESULT, False)] * 3
    sums.close()


def test_rows_of_the_device_are_lent_again(bench: Bench) -> None:
    device = bench.open()
    rows = [device.result(BN254.g2_bytes, ME) for _ in range(9)]
    assert len({row.address for row in rows}) == 9
    assert device.memory().by_purpose == {"context": device.context_bytes, "result": BN254.g2_bytes}
    address = rows[3].address
    for _ in range(2):
        rows[3].free()
    with pytest.raises(ValueError, match="freed"):
        _ = rows[3].address
    with device.result(BN254.g1_bytes, ME) as again, device.result(BN254.g1_bytes, ME) as other:
        assert again.address == address != other.address
    for row in rows:
        row.free()
    assert device.memory().by_purpose == {"context": device.context_bytes}
    device.close()
    assert not bench.runtime.blocks


def test_a_row_is_written_behind_what_used_it_before(bench: Bench) -> None:
    sums = Sums(bench)
    device, addresses = sums.device, []
    for n in (64, 20, 33):
        with device.result(BN254.g1_bytes, ME) as result:
            addresses.append(result.address)
            operation = Msm(BN254, 1, some_points(BN254, n), sums.values, 0, n, result)
            event = device.launch(operation, ME, CancelToken(), sums.ready)
    event.wait()
    assert len(set(addresses)) == 1
    sums.close()


def test_a_result_that_is_written_again_is_the_new_one(bench: Bench) -> None:
    """Also where nobody had asked for the old one; and a buffer that was uploaded to since holds no result."""
    sums = Sums(bench)
    device, many, few = sums.device, some_points(BN254, 64), some_points(BN254, 20)
    with device.allocate(BN254.g1_bytes, Purpose.RESULT, ME) as result:
        for points in (many, few, many):
            n = len(points)
            operation = Msm(BN254, 1, points, sums.values, 64 - n, n, result)
            event = device.launch(operation, ME, CancelToken(), sums.ready)
        event.wait()
        found = device.download(result, BN254.g1_bytes, Kind.DOWNLOAD_RESULT, ME)
        sums.launch(many)
        assert sums.running[0][2] == found
        sums.check()
        device.upload(result, np.full(BN254.g1_bytes, 7, np.uint8), Kind.UPLOAD_ABC, ME).wait()
        assert device.download(result, BN254.g1_bytes, Kind.DOWNLOAD_RESULT, ME) == bytes([7]) * BN254.g1_bytes
    sums.close()


@pytest.mark.parametrize("waits", [True, False])
def test_a_download_waits_for_the_sum(bench: Bench, waits: bool) -> None:
    sums = Sums(bench)
    event = sums.launch(some_points(BN254, 64), Owner("job", 0, 0))
    if waits:
        event.wait()
    (_, result, right) = sums.running.pop()
    assert sums.device.download(result, BN254.g1_bytes, Kind.DOWNLOAD_RESULT, ME) == right
    result.free()
    sums.device._slots.settle()
    sums.close()
