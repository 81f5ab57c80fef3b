"""When jobs waited, from their states one after the other."""

from cuzk_engine.client.types import JobInfo, JobState, Priority
from cuzk_engine.diagnosis.jobs import JobTable

OFFSET = 1_000  # of the wall clock


def job(state: JobState, done: int, at: int, *, partitions: int = 3, ended: int = 0) -> JobInfo:
    times = (OFFSET + 10, OFFSET + 20 if state is not JobState.QUEUED else 0, OFFSET + ended if ended else 0)
    return JobInfo(
        "a", "", "", "", "", "", state, Priority.NORMAL, 0, "", 0, "cpu", partitions, done, "", *times, OFFSET + at
    )


def waiting(*states: JobInfo) -> list[list[int]]:
    table = JobTable()
    for one in states:
        table.update([one], OFFSET)
    found: list[list[int]] = table.queue("cpu").waiting.tolist()
    return found


QUEUED, RUNNING, COMPLETED = JobState.QUEUED, JobState.RUNNING, JobState.COMPLETED


def test_a_job_waits_until_its_last_partition_is_taken() -> None:
    running = [job(QUEUED, 0, 10), job(RUNNING, 0, 20), job(RUNNING, 1, 30), job(RUNNING, 2, 40)]
    assert waiting(*running[:3])[0][1] > 1_000_000  # for as long as it is known
    assert waiting(*running) == [[10, 40]]
    assert waiting(*running, job(COMPLETED, 3, 50, ended=50)) == [[10, 40]]  # also when it is over


def test_a_job_of_one_partition_waits_until_it_runs() -> None:
    states = [job(state, 0, 20, partitions=1) for state in (QUEUED, RUNNING)]
    assert waiting(*states, job(COMPLETED, 1, 50, partitions=1, ended=50)) == [[10, 20]]


def test_states_that_were_not_told_are_not_made_up() -> None:
    assert waiting(job(COMPLETED, 3, 50, ended=50)) == [[10, 20]]
    assert waiting(job(RUNNING, 0, 20), job(COMPLETED, 3, 50, ended=50)) == [[10, 50]]
