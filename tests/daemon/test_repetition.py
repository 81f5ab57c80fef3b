"""What a witness is remembered by."""

import os
from pathlib import Path

import pytest

from cuzk_engine.daemon.records import JobRecord, Partition
from cuzk_engine.daemon.refusal import RefusedError
from cuzk_engine.daemon.repetition import Contents, Repetition, Seen
from cuzk_engine.errors import FormatError

LONG_AGO = 10**18


def contents(repetition: Repetition, data: bytes) -> Contents:
    measure = repetition.measure()
    measure.update(data)
    return measure.contents()


def job(name: str, *, spooled: bool = True) -> JobRecord:
    return JobRecord(name, request_id="r", spooled=spooled)


def test_a_digest_is_of_one_process_only() -> None:
    one, other = Repetition(), Repetition()
    assert contents(one, b"witness") == contents(one, b"witness")
    assert contents(one, b"witness") != contents(other, b"witness")


def test_the_newest_are_remembered_and_no_more(tmp_path: Path) -> None:
    repetition, gone = Repetition(remembered=2), Partition(witness_path=str(tmp_path / "gone"))
    for name in "abc":
        repetition.remember(job(name), [Seen(contents(repetition, name.encode()))])
    other = contents(repetition, b"other")
    for name in "bc":
        repetition.check_streamed(job(name), gone, contents(repetition, name.encode()))
        with pytest.raises(RefusedError, match="is that of job"):
            repetition.check_streamed(job(name), gone, other)
    repetition.check_streamed(job("a"), gone, other)  # nothing is known of it


def test_witnesses_are_counted_not_jobs(tmp_path: Path) -> None:
    repetition, gone = Repetition(remembered=3), Partition(witness_path=str(tmp_path / "gone"))
    seen, other = Seen(contents(repetition, b"w")), contents(repetition, b"other")
    repetition.remember(job("a"), [seen])
    repetition.remember(job("b"), [seen, seen])
    with pytest.raises(RefusedError, match="is that of job"):
        repetition.check_streamed(job("a"), gone, other)
    repetition.remember(job("c"), [seen])
    repetition.check_streamed(job("a"), gone, other)
    with pytest.raises(RefusedError, match="is that of job"):
        repetition.check_streamed(job("b"), gone, other)


def test_a_file_of_the_spool_speaks_for_itself(tmp_path: Path) -> None:
    repetition, path = Repetition(), tmp_path / "w"
    path.write_bytes(data := bytes(range(256)) * 9000)
    part = Partition(witness_path=str(path))
    assert repetition.contents_of(job("a"), part) == contents(repetition, data)


def test_a_file_that_has_just_been_written_is_read_again(tmp_path: Path) -> None:
    """A change in the same tick of the file system's clock does not show in its times."""
    path = tmp_path / "w"
    path.write_bytes(b"witness")
    repetition, part, known = Repetition(), Partition(witness_path=str(path)), job("a", spooled=False)
    seen = repetition.look(str(path))
    assert not seen.settled
    path.write_bytes(b"another")
    status = os.stat(path)
    now = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    repetition.remember(known, [seen._replace(identity=now)])  # as if the clock had stood
    with pytest.raises(RefusedError, match="as it was then, not as it is now"):
        repetition.check_paths(known, [part], [str(path)])


def test_a_file_that_lies_unchanged_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "w"
    path.write_bytes(b"witness")
    repetition, part, known = Repetition(), Partition(witness_path=str(path)), job("a", spooled=False)
    seen = repetition.look(str(path))
    repetition.remember(known, [Seen(contents(repetition, b"never read"), seen.identity, settled=True)])
    repetition.check_paths(known, [part], [str(path)])
    os.utime(path, ns=(LONG_AGO, seen.identity[3]))  # its time of change tells
    with pytest.raises(RefusedError, match="as it was then, not as it is now"):
        repetition.check_paths(known, [part], [str(path)])


def test_a_file_is_known_again_on_another_mount(tmp_path: Path) -> None:
    """After a restart of the machine device and inode may be others."""
    path = tmp_path / "w"
    path.write_bytes(b"witness")
    repetition, known = Repetition(), job("a", spooled=False)
    _, _, *rest = repetition.look(str(path)).identity
    part = Partition(witness_path=str(path), witness_identity=(1, 2, *rest))
    repetition.check_paths(known, [part], [str(path)])
    path.write_bytes(b"another")
    os.utime(path, ns=(LONG_AGO, rest[1]))  # as `touch -r` sets it back
    with pytest.raises(RefusedError, match="as it was then, not as it is now"):
        repetition.check_paths(known, [part], [str(path)])


def test_a_job_of_an_older_store(tmp_path: Path) -> None:
    """Nothing is known of its witness but the path."""
    path, other = tmp_path / "w", tmp_path / "other"
    path.write_bytes(b"witness")
    other.write_bytes(b"another")
    repetition, known, part = Repetition(), job("a", spooled=False), Partition(witness_path=str(path))
    repetition.check_paths(known, [part], [str(path)])
    with pytest.raises(RefusedError, match="which has the witness"):
        repetition.check_paths(known, [part], [str(other)])


def test_reading_ends_with_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "w"
    repetition = Repetition()
    with pytest.raises(FormatError, match="no such file"):
        repetition.look(str(path))
    path.write_bytes(b"witness")
    repetition.stop()
    with pytest.raises(RefusedError, match="the engine is stopping"):
        repetition.look(str(path))
