"""Each cause from the smallest timeline that has it, and the figures that are told."""

import pytest

from cuzk_engine.events import Cause, Kind
from tests.diagnosis.story import Story

HELD = (Kind.LOCK_HELD, 0, 100)
MIB = 1 << 20


def between(story: Story) -> Story:
    """Kernels of one partition before 20 and after 60."""
    return story.kernel(0, 20).kernel(60, 100)


def test_no_job_is_queue_empty() -> None:
    gap = Story().kernel(0, 20, "a").kernel(60, 100, "b").gap()
    assert (gap.cause, gap.job, gap.worker) == (Cause.QUEUE_EMPTY, "", -1)
    assert gap.evidence == "40.0 ms without a kernel: no job ran or waited"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Kind.EVALUATE, "worker 1 was evaluating a, b, c (40.0 ms); no other partition was ready"),
        (Kind.READ_WITNESS, "worker 1 was reading the witness (40.0 ms); no other partition was ready"),
        (Kind.PAGE_LOCK, "worker 1 was page-locking (40.0 ms); no other partition was ready"),
        (Kind.UPLOAD_ABC, "worker 1 was uploading a, b, c (40.0 ms); no other partition was ready"),
    ],
)
def test_host_starved(kind: Kind, words: str) -> None:
    gap = Story().kernel(0, 20).did(kind, 20, 60, "b", 1).kernel(60, 100, "b", 1).gap()
    assert (gap.cause, gap.job, gap.worker) == (Cause.HOST_STARVED, "b", 1)
    assert gap.evidence.endswith(words)


@pytest.mark.parametrize("pinned", [False, True])
def test_an_upload_inside_the_lock(pinned: bool) -> None:
    story = between(Story()).did(*HELD).did(Kind.UPLOAD_ABC, 20, 60, size=40 * MIB, pinned=pinned)
    gap = story.gap()
    memory = "page-locked" if pinned else "pageable"
    assert gap.cause == (Cause.LOCK_HANDOVER if pinned else Cause.PAGEABLE_UPLOAD)
    assert f"40 MiB of a, b, c from {memory} memory at 1.05 GB/s (40.0 ms)" in gap.evidence


def test_a_hold_that_still_lasts_counts_as_one() -> None:
    story = between(Story()).did(Kind.LOCK_WAIT, 0, 0).did(Kind.UPLOAD_ABC, 20, 60, size=MIB, pinned=False)
    assert story.gap().cause == Cause.PAGEABLE_UPLOAD


def test_srs_cold_by_loading_and_by_streaming() -> None:
    loading = Story().did(Kind.LOAD_KEY, 0, 60).kernel(60, 100).gap()
    assert loading.cause == Cause.SRS_COLD
    assert loading.evidence.endswith("worker 0 was loading the key (60.0 ms)")
    streaming = between(Story()).did(*HELD).did(Kind.UPLOAD_SRS, 20, 60, size=MIB, pinned=True)
    assert streaming.gap().cause == Cause.SRS_COLD
    assert "of key points from page-locked memory" in streaming.gap().evidence


def test_lock_handover() -> None:
    story = Story().kernel(0, 20).did(Kind.LOCK_HELD, 0, 40).did(Kind.LOCK_WAIT, 10, 40, "b", 1)
    gap = story.did(Kind.LOCK_HELD, 40, 100, "b", 1).kernel(60, 100, "b", 1).gap()
    assert gap.cause == Cause.LOCK_HANDOVER
    words = "from job a of worker 0 to job b of worker 1, a worker had waited for the lock for 30.0 ms"
    assert gap.evidence.endswith(f"the lock was held, {words}")


def test_result_sync() -> None:
    story = between(Story()).did(*HELD).did(Kind.RESULT_SYNC, 20, 35).did(Kind.RESULT_SYNC, 35, 60)
    gap = story.gap()
    assert gap.cause == Cause.RESULT_SYNC
    assert "waiting for results (40.0 ms) 2 times" in gap.evidence
    download = between(Story()).did(*HELD).did(Kind.DOWNLOAD_RESULT, 20, 60, size=MIB)
    assert download.gap().cause == Cause.RESULT_SYNC


def test_memory_wait_names_what_was_asked_for_and_what_was_in_use() -> None:
    story = Story("cpu").kernel(0, 20).did(Kind.MEMORY_WAIT, 5, 60, "b", 1, 6 << 30).kernel(60, 100, "b", 1)
    gap = story.sample(1, memory_used=12 << 30, memory_capacity=16 << 30).gap()
    assert gap.cause == Cause.MEMORY_WAIT
    assert gap.evidence.endswith("worker 1 was waiting for memory (40.0 ms) for 6 GiB; 12 GiB of 16 GiB were in use")


def test_pool_trim_and_compilation() -> None:
    assert between(Story()).did(*HELD).did(Kind.POOL_TRIM, 20, 60).gap().cause == Cause.POOL_TRIM
    gap = Story().did(Kind.COMPILE, 0, 60).kernel(60, 100).gap()
    assert gap.cause == Cause.KERNEL_COMPILE
    assert "worker 0 was compiling kernels (60.0 ms)" in gap.evidence


def test_other_process_by_utilisation() -> None:
    story = Story().kernel(0, 20).did(Kind.LOCK_HELD, 0, 5000).kernel(4000, 5000)
    assert story.gap(0, 5000).cause == Cause.UNKNOWN
    story.sample(500, utilisation=0.9)  # may still be of our own kernels
    assert story.gap(0, 5000).cause == Cause.UNKNOWN
    gap = story.sample(2000, utilisation=0.97).gap(0, 5000)
    assert gap.cause == Cause.OTHER_PROCESS
    assert "97 % busy, with kernels of another program" in gap.evidence


def test_other_process_by_memory() -> None:
    story = Story().kernel(0, 20).did(Kind.MEMORY_WAIT, 20, 60, "b", 1, 6 << 30).kernel(60, 100, "b", 1)
    story.sample(10, memory_used=3 << 30, memory_capacity=16 << 30, memory_other=10 << 30)
    assert story.gap().cause == Cause.OTHER_PROCESS
    assert "10 GiB by other programs" in story.gap().evidence


def test_other_programs_do_not_explain_a_cpu() -> None:
    story = Story("cpu").kernel(0, 20).did(Kind.LOCK_HELD, 0, 5000).kernel(4000, 5000)
    assert story.sample(2000, utilisation=0.97).gap(0, 5000).cause == Cause.UNKNOWN


def test_throttled() -> None:
    story = between(Story()).did(*HELD).sample(10, clock=1980.0, temperature=60.0)
    assert story.gap().cause == Cause.UNKNOWN
    gap = story.sample(40, clock=900.0, temperature=91.0).gap()
    assert gap.cause == Cause.THROTTLED
    assert gap.evidence.endswith("the card ran at 900 of 1980 MHz at 91 °C")


def test_unknown_is_said() -> None:
    assert between(Story()).gap().cause == Cause.UNKNOWN
    gap = between(Story()).did(*HELD).gap()  # one partition's, all the time
    assert gap.cause == Cause.UNKNOWN
    assert gap.evidence.endswith("one worker held the lock, and no span, sample or wait explains it")


# ---- which of several holds ----


def test_the_holder_of_the_lock_comes_first() -> None:
    """Whoever waits for the lock, or evaluates meanwhile, could not have run a kernel."""
    story = Story().kernel(0, 20).did(Kind.LOCK_HELD, 0, 60).did(Kind.RESULT_SYNC, 20, 60)
    story.did(Kind.EVALUATE, 0, 59, "b", 1).did(Kind.LOCK_WAIT, 59, 60, "b", 1).kernel(60, 100, "b", 1)
    assert story.gap().cause == Cause.RESULT_SYNC


def test_then_the_worker_whose_kernel_ends_the_gap() -> None:
    story = Story().kernel(0, 20).did(Kind.EVALUATE, 10, 60, "b", 1).did(Kind.LOAD_KEY, 0, 90, "c", 2)
    assert story.kernel(60, 100, "b", 1).gap().cause == Cause.HOST_STARVED
    swapped = Story().kernel(0, 20).did(Kind.EVALUATE, 10, 90, "b", 1).did(Kind.LOAD_KEY, 0, 60, "c", 2)
    assert swapped.kernel(60, 100, "c", 2).gap().cause == Cause.SRS_COLD


def test_a_stretch_is_cut_where_its_cause_changes() -> None:
    story = Story().kernel(0, 20, "a").did(Kind.EVALUATE, 50, 58, "b").did(Kind.LOCK_HELD, 58, 100, "b")
    story.did(Kind.UPLOAD_ABC, 58, 70, "b", pinned=False).kernel(70, 100, "b")
    assert story.gaps() == [
        (20, 50, Cause.QUEUE_EMPTY),
        (50, 58, Cause.HOST_STARVED),
        (58, 70, Cause.PAGEABLE_UPLOAD),
    ]


def test_slivers_belong_to_their_longer_neighbour() -> None:
    story = Story().kernel(0, 20, "a").did(Kind.EVALUATE, 50, 69.5, "b").did(Kind.LOCK_HELD, 69.5, 100, "b")
    assert story.kernel(70, 100, "b").gaps() == [(20, 50, Cause.QUEUE_EMPTY), (50, 70, Cause.HOST_STARVED)]


def test_where_all_pieces_are_slivers_the_cause_of_most_time_takes_them() -> None:
    story = Story().kernel(0, 20, "a").kernel(21.5, 100, "b")
    story.did(Kind.READ_WITNESS, 20, 20.4, "b").did(Kind.LOAD_KEY, 20.4, 21, "b").did(Kind.EVALUATE, 21, 21.5, "b")
    assert story.gaps() == [(20, 21.5, Cause.HOST_STARVED)]


def test_idleness_below_the_threshold_is_short() -> None:
    story = Story().kernel(0, 20).kernel(20.5, 99.9)
    found = story.idleness()
    assert (found.gaps, found.short_ns) == ([], 600_000)
    assert len(story.idleness(threshold=0.1).gaps) == 2
    assert Story("cpu").kernel(0, 20).kernel(24, 100).gaps() == []


# ---- what is known of jobs ----


def test_finishing_starves_only_a_job_that_waits() -> None:
    story = Story().kernel(0, 20, "a").did(Kind.VERIFY, 20, 60, "a").kernel(60, 100, "b")
    assert story.gaps() == [(20, 60, Cause.HOST_STARVED)]  # nobody told of jobs
    waits = story.job(0, 0, 60).job(40, 60)
    assert waits.gaps() == [(20, 40, Cause.QUEUE_EMPTY), (40, 60, Cause.HOST_STARVED)]
    assert "no job waited, worker 0 was verifying (20.0 ms)" in story.idleness().gaps[0].evidence


def test_a_job_that_waits_while_nobody_works_is_starved() -> None:
    story = Story().kernel(0, 20, "a").kernel(60, 100, "b").job(0, 0, 20).job(10, 60)
    assert story.gap().cause == Cause.HOST_STARVED
    assert story.gap().evidence.endswith("one was between two steps, or had not begun")


def test_a_worker_between_two_steps_is_starved() -> None:
    story = Story().kernel(0, 20, "a").did(Kind.READ_WITNESS, 18, 20, "b", 1).did(Kind.EVALUATE, 59, 60, "b", 1)
    assert story.kernel(60, 100, "b", 1).gap().cause == Cause.HOST_STARVED
    longer = Story().kernel(0, 20, "a").did(Kind.READ_WITNESS, 18, 20, "b", 1).did(Kind.EVALUATE, 99, 100, "b", 1)
    assert longer.kernel(100, 110, "b", 1).gaps(0, 110)[0] == (20, 99, Cause.UNKNOWN)


def test_after_its_kernels_a_worker_between_two_steps_starves_only_a_job_that_waits() -> None:
    story = Story().kernel(0, 20, "a").did(Kind.VERIFY, 40, 41, "a").kernel(60, 100, "b").job(0, 0, 41)
    assert story.gaps() == [(20, 60, Cause.QUEUE_EMPTY)]
    assert story.job(10, 60).gaps() == [(20, 60, Cause.HOST_STARVED)]


def test_a_running_job_without_spans_is_unknown() -> None:
    story = Story().kernel(0, 20, "a").kernel(90, 100, "b").job(0, 0, 20).job(20, 20)
    assert story.gap().cause == Cause.UNKNOWN


def test_a_job_of_another_device_explains_nothing() -> None:
    story = Story().kernel(0, 20, "a").kernel(60, 100, "b").job(0, 0)
    other = Story("cuda:1", jobs=story.jobs, spans=story.spans)
    assert other.queue.running.tolist() == []
