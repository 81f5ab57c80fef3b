from cuzk_engine.diagnosis.shares import partitions, shares, transfers
from cuzk_engine.events import Kind
from tests.diagnosis.story import MS, Story

MIB = 1 << 20


def test_the_lock_beside_the_kernels() -> None:
    story = Story().did(Kind.LOCK_HELD, 10, 60).kernel(20, 40).kernel(35, 50)
    story.did(Kind.UPLOAD_ABC, 5, 25, pinned=True).did(Kind.DOWNLOAD_RESULT, 50, 55)
    found = shares(story.table, 0, 100 * MS)
    assert (found.busy, found.idle, found.held, found.held_idle) == (30 * MS, 70 * MS, 50 * MS, 20 * MS)
    assert found.copying == 25 * MS
    assert found.by_kind == {"ntt": 35 * MS}


def test_a_hold_that_ended_with_its_process_lasts_as_long_as_that_try() -> None:
    """The process died after 30 ms; the partition was tried again from 70 ms on, by another worker."""
    story = Story().did(Kind.LOCK_WAIT, 10, 10).kernel(12, 30)
    story.did(Kind.LOAD_KEY, 70, 71, worker=1).did(Kind.READ_WITNESS, 71, 75, worker=1)
    story.did(Kind.LOCK_WAIT, 76, 76, worker=1).kernel(77, 90, worker=1).did(Kind.LOCK_HELD, 76, 91, worker=1)
    found = shares(story.table, 0, 100 * MS)
    assert (found.held, found.held_idle) == (35 * MS, 4 * MS)


def test_a_window_cuts_spans() -> None:
    story = Story().kernel(0, 40).did(Kind.LOCK_HELD, 0, 100)
    found = shares(story.table, 30 * MS, 50 * MS)
    assert (found.window, found.busy, found.held, found.held_idle) == (20 * MS, 10 * MS, 20 * MS, 10 * MS)
    assert found.by_kind == {"ntt": 10 * MS}


def test_transfers_by_kind_and_memory() -> None:
    story = Story().did(Kind.UPLOAD_ABC, 0, 10, size=50 * MIB, pinned=True)
    story.did(Kind.UPLOAD_ABC, 5, 15, size=50 * MIB, pinned=True).did(Kind.UPLOAD_ABC, 20, 30, size=MIB, pinned=False)
    pinned, pageable = transfers(story.table)
    assert (pinned.kind, pinned.pinned, pinned.count, pinned.bytes) == ("upload.abc", True, 2, 100 * MIB)
    assert pinned.nanoseconds == 15 * MS  # side by side
    assert pinned.rate == 100 * MIB / 0.015
    assert (pageable.pinned, pageable.count, pageable.rate) == (False, 1, MIB / 0.01)


def test_a_transfer_without_length_has_no_rate() -> None:
    (found,) = transfers(Story().did(Kind.DOWNLOAD_RESULT, 5, 5, size=96).table)
    assert found.rate is None


def test_partitions_one_by_one() -> None:
    story = Story().did(Kind.EVALUATE, 0, 10, "a").did(Kind.LOCK_WAIT, 10, 30, "a").did(Kind.LOCK_HELD, 30, 80, "a")
    story.kernel(31, 50, "a").kernel(50, 79, "a").did(Kind.VERIFY, 80, 85, "a").did(Kind.READ_WITNESS, 4, 6, "b", 1)
    first, second = partitions(story.table)
    assert (first.job, first.partition, first.start, first.end, first.kernels) == ("a", 0, 0, 85 * MS, 48 * MS)
    assert first.parts == {
        "evaluate": 10 * MS,
        "lock wait": 20 * MS,
        "lock held": 50 * MS,
        "verify": 5 * MS,
    }
    assert (second.job, second.parts) == ("b", {"read witness": 2 * MS})


def test_nothing_gives_nothing() -> None:
    found = shares(Story().table, 0, 0)
    assert (found.window, found.busy, found.idle) == (0, 0, 0)
    assert partitions(Story().table) == transfers(Story().table) == []
