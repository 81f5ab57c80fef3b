"""What a streamed witness is remembered by."""

from pathlib import Path

import pytest

from cuzk_engine.daemon.records import JobRecord, Partition
from cuzk_engine.daemon.refusal import RefusedError
from cuzk_engine.daemon.repetition import Contents, Repetition


def contents(repetition: Repetition, data: bytes) -> Contents:
    measure = repetition.measure()
    measure.update(data)
    return measure.contents()


def job(name: str) -> JobRecord:
    return JobRecord(name, request_id="r", spooled=True)


def test_a_digest_is_of_one_process_only() -> None:
    one, other = Repetition(), Repetition()
    assert contents(one, b"witness") == contents(one, b"witness")
    assert contents(one, b"witness") != contents(other, b"witness")


def test_the_newest_are_remembered_and_no_more(tmp_path: Path) -> None:
    repetition, gone = Repetition(remembered=2), Partition(witness_path=str(tmp_path / "gone"))
    for name in "abc":
        repetition.remember(job(name), contents(repetition, name.encode()))
    other = contents(repetition, b"other")
    for name in "bc":
        repetition.check_streamed(job(name), gone, contents(repetition, name.encode()))
        with pytest.raises(RefusedError, match="is that of job"):
            repetition.check_streamed(job(name), gone, other)
    repetition.check_streamed(job("a"), gone, other)  # nothing is known of it


def test_a_file_of_the_spool_speaks_for_itself(tmp_path: Path) -> None:
    repetition, path = Repetition(), tmp_path / "w"
    path.write_bytes(data := bytes(range(256)) * 9000)
    part = Partition(witness_path=str(path))
    assert repetition.contents_of(job("a"), part) == contents(repetition, data)
