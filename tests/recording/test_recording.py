"""What was streamed is what is read; files that are damaged, foreign or malicious give one sentence."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.client.convert import update_from_wire
from cuzk_engine.client.recording import Recording
from cuzk_engine.client.types import TelemetryUpdate
from cuzk_engine.diagnosis.table import Names
from cuzk_engine.errors import CuzkError, FormatError
from cuzk_engine.events import EventBatch, Mark
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.recording.contents import Contents
from cuzk_engine.recording.layout import APPLICATION_ID, LEVELS, SCHEMA
from cuzk_engine.recording.merge import merged
from cuzk_engine.recording.reader import RecordingReader
from cuzk_engine.recording.writer import RecordingWriter
from cuzk_engine.telemetry.columns import decode_events, encode_events
from tests.recording.streams import MS, WALL, S, batch, head, oddities, stream
from tests.telemetry.test_columns import batches


def write(path: Path, messages: Iterable[pb.TelemetryBatch], limit: int = 1 << 30) -> RecordingWriter:
    with RecordingWriter(path, limit=limit, address="127.0.0.1:1") as writer:
        for message in messages:
            writer.add(message)
    return writer


def read(path: Path) -> list[TelemetryUpdate]:
    with Recording.open(path) as recording:
        found = list(recording.updates())
        assert recording.damage is None
    return found


def noisy(count: int) -> Iterable[pb.TelemetryBatch]:
    """Batches that stay large in the file."""
    yield head(5 * S)
    for i in range(count):
        message = batch(5 * S + (i + 1) * 50 * MS, 40)
        message.logs.add(time_ns=message.time_ns, message=os.urandom(1000).hex())
        yield message


def together(found: Iterable[EventBatch]) -> EventBatch:
    whole = EventBatch.empty()
    for events in found:
        for name in ("spans", "samples", "allocations", "marks", "incidents", "logs", "gaps", "findings"):
            getattr(whole, name).extend(getattr(events, name))
        whole.dropped += events.dropped
    return whole


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "r.cuzkrec"
    write(path, stream(20))
    return path


def test_what_was_streamed_is_read(tmp_path: Path) -> None:
    path = tmp_path / "r.cuzkrec"
    messages = [*stream(7), oddities(13 * S)]
    writer = write(path, messages)
    updates = read(path)
    sent = [update_from_wire(message) for message in messages]
    sent[0].events.marks.append(Mark(5 * S, "recording", "recording began"))
    assert together(update.events for update in updates) == together(update.events for update in sent)
    first = updates[0]
    assert (first.identity, first.settings, first.memory) == (sent[0].identity, sent[0].settings, sent[0].memory)
    assert [update.time_ns for update in updates] == sorted(update.time_ns for update in updates)
    assert (updates[-1].time_ns, updates[-1].wall_ns) == (13 * S, WALL + 13 * S)
    assert updates[0].time_ns == 5 * S
    assert 4 <= len(updates) <= 6  # about two seconds each
    jobs = {job.id: job for update in updates for job in update.jobs}
    assert set(jobs) == {f"job {i}" for i in range(7)}
    assert (writer.events, writer.lost) == (len(together(update.events for update in sent)), 3)
    assert {item.name for item in tmp_path.iterdir()} == {"r.cuzkrec"}  # one plain file
    with Recording.open(path) as recording:
        info = recording.info
    assert (info.start_ns, info.end_ns, info.wall_offset_ns) == (5 * S, 13 * S, WALL)
    assert (info.identity.build, info.address, info.lost, info.dropped_until_ns) == ("b" * 64, "127.0.0.1:1", 3, None)


def test_history_is_older_than_the_connection(tmp_path: Path) -> None:
    """The first message has the time of the connection and the ledger before the history."""
    path = tmp_path / "r.cuzkrec"
    write(path, [head(60 * S), batch(10 * S), batch(11 * S), batch(61 * S)])
    updates = read(path)
    assert updates[0].time_ns <= 11 * S
    assert updates[0].memory == {("cpu", "srs"): 100}
    marks = [mark for update in updates for mark in update.events.marks]
    assert [(mark.time_ns, mark.kind) for mark in marks] == [(60 * S, "recording")]
    with Recording.open(path) as recording:
        assert recording.info.start_ns == 10 * S - 50 * MS


def test_a_stream_that_said_hello_only(tmp_path: Path) -> None:
    path = tmp_path / "r.cuzkrec"
    write(path, [head(5 * S)])
    first, second = read(path)
    assert first.identity is not None
    assert [mark.text for mark in second.events.marks] == ["recording began"]


def test_a_recording_of_nothing_leaves_no_file(tmp_path: Path) -> None:
    writer = write(tmp_path / "nothing.cuzkrec", [])
    assert writer.is_empty
    assert writer.remains == "nothing was recorded, and no file is left"
    assert list(tmp_path.iterdir()) == []


@given(st.lists(batches, min_size=1, max_size=4))
def test_merged_batches_hold_what_each_held(found: Sequence[EventBatch]) -> None:
    one = decode_events(merged([encode_events(events) for events in found]))
    assert one == together(found)


def test_what_waited_is_known_of_a_job_within_one_chunk(tmp_path: Path) -> None:
    """Its partitions' progress tells it, not its last state."""
    path = tmp_path / "r.cuzkrec"
    messages = [head(5 * S)]
    for number, (state, done) in enumerate(
        [(pb.JOB_STATE_RUNNING, 0), (pb.JOB_STATE_RUNNING, 1), (pb.JOB_STATE_RUNNING, 2), (pb.JOB_STATE_COMPLETED, 3)]
    ):
        message = batch(5 * S + (number + 1) * 100 * MS)
        at, began = message.wall_ns, message.wall_ns - number * 100 * MS
        del message.jobs[:]
        ended = at if state == pb.JOB_STATE_COMPLETED else 0
        message.jobs.add(
            id="j", state=state, partitions=3, partitions_done=done, device="cpu", last_activity_unix_ns=at,
            submitted_unix_ns=began, started_unix_ns=began, finished_unix_ns=ended,
        )  # fmt: skip
        messages.append(message)
    write(path, messages)
    with Recording.open(path) as recording:
        waiting = Contents.load(recording).jobs.queue("cpu").waiting
    assert waiting.tolist() == [[5 * S + 100 * MS, 5 * S + 300 * MS]]


def test_a_part_of_the_time_knows_what_was_in_use_before_it(tmp_path: Path) -> None:
    path = tmp_path / "r.cuzkrec"
    growing = [batch(5 * S + i * 100 * MS) for i in range(1, 100)]
    for number, message in enumerate(growing):
        events = decode_events(message)
        del events.allocations[1]  # never given back
        again = encode_events(events)
        again.time_ns, again.wall_ns = message.time_ns, message.wall_ns
        growing[number] = again
    write(path, [head(5 * S), *growing])
    with Recording.open(path) as recording:
        found = list(recording.updates(10 * S, 11 * S))
    memory = found[0].memory
    assert memory is not None
    assert found[0].identity is not None
    before = [event for m in growing for event in decode_events(m).allocations if m.time_ns < first_time(found[1])]
    assert memory == {("cpu", "srs"): 100, ("cpu", "abc"): 64 * len(before)}
    assert found[-1].time_ns < 14 * S


def first_time(update: TelemetryUpdate) -> int:
    return min(a.time_ns for a in update.events.allocations)


def test_columns_by_time(recorded: Path) -> None:
    names = Names()
    with RecordingReader(recorded) as reader:
        tables = [table for table, _ in reader.span_tables(names, 10 * S, 12 * S) if len(table)]
    assert sum(map(len, tables)) >= 2 * 20 * 5
    assert all(table.end.max() >= 10 * S and table.start.min() <= 12 * S for table in tables)
    assert names.find("job 5") >= 0


def test_coarse_levels(recorded: Path) -> None:
    with RecordingReader(recorded) as reader:
        ((start, row),) = reader.level(0)
        assert reader.damage is None
        minutes = list(reader.level(1))
    assert start == 0
    busy = row["cpu"]["busy.compute"]
    assert busy[10] == pytest.approx(0.8 * LEVELS[0])  # 40 of 50 ms
    assert busy[0] is None
    assert row["cpu"]["memory.abc"][10] == 64
    assert row["cpu"]["memory.srs"][5] == 100
    assert row["cpu"]["utilisation"][10] == 0.5
    assert sum(v or 0 for v in minutes[0][1]["cpu"]["busy.compute"]) == pytest.approx(0.8 * 20 * S)


# ---- the limit ----


def test_the_limit_drops_the_oldest_chunks_and_keeps_their_levels(tmp_path: Path) -> None:
    path = tmp_path / "r.cuzkrec"
    limit = 1 << 20

    writer = write(path, noisy(1200), limit)
    assert path.stat().st_size <= limit
    assert path.stat().st_size > limit // 2
    assert writer.dropped_chunks > 0
    with Recording.open(path) as recording:
        info = recording.info
        updates = list(recording.updates())
        ((_, row),) = recording.reader.level(0)
    assert info.dropped_until_ns == writer.dropped_until_ns == info.start_ns
    assert updates[0].time_ns >= 15 * S
    assert updates[1].time_ns > 15 * S
    assert updates[0].memory == {("cpu", "srs"): 100}
    assert updates[-1].time_ns == 65 * S
    assert (row["cpu"]["busy.compute"][7] or 0) > 0  # of a chunk that was dropped


# ---- files that are not whole ----


def test_a_recorder_that_was_killed_leaves_what_it_had(tmp_path: Path) -> None:
    path = tmp_path / "r.cuzkrec"
    script = (
        "import sys\nfrom pathlib import Path\nfrom tests.recording.streams import stream\n"
        "from cuzk_engine.recording.writer import RecordingWriter\n"
        "writer = RecordingWriter(Path(sys.argv[1]))\n"
        "for message in stream(20): writer.add(message)\n"
        "print('written', flush=True)\nsys.stdin.read()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == b"written\n"
    child.send_signal(signal.SIGKILL)
    child.wait(20)
    child.stdin.close()
    child.stdout.close()
    alone = tmp_path / "alone.cuzkrec"
    shutil.copy(path, alone)
    with pytest.raises(FormatError) as caught:
        Recording.open(alone)
    text = f"the recorder did not end it, and {alone}-wal, where its end may be, is missing"
    assert str(caught.value) == f"{alone}: is damaged: nothing in it can be read ({text})"
    updates = read(path)
    assert updates[-1].time_ns >= 22 * S


def test_a_file_that_was_cut_to_nothing_is_refused(recorded: Path, tmp_path: Path) -> None:
    path, whole = tmp_path / "cut.cuzkrec", recorded.read_bytes()
    path.write_bytes(whole[:20_000])
    with pytest.raises(FormatError) as caught:
        Recording.open(path)
    assert str(caught.value).startswith(f"{path}: is damaged: ")
    assert "\n" not in str(caught.value)


def test_what_was_cut_off_is_no_idle_time(tmp_path: Path) -> None:
    whole, path = tmp_path / "r.cuzkrec", tmp_path / "cut.cuzkrec"
    write(whole, noisy(400))
    content = whole.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with Recording.open(path) as recording, Recording.open(whole) as other:
        last = list(recording.updates())[-1]
        assert recording.info.end_ns == last.time_ns < other.info.end_ns
        assert 0 < recording.info.events < other.info.events
        contents = Contents.load(recording)
    assert contents.damage is not None
    assert contents.end_ns == last.time_ns
    assert contents.summary("cpu").busy_share > 0.7


def test_what_cannot_be_read_is_no_idle_time(recorded: Path) -> None:
    with sqlite3.connect(recorded) as database:
        database.execute("UPDATE chunks SET data = ? WHERE number = 4", (b"junk",))
    with Recording.open(recorded) as recording:
        contents = Contents.load(recording)
        assert contents.end_ns < 15 * S < recording.info.end_ns
    assert contents.summary("cpu").busy_share > 0.7


def test_a_file_that_was_cut_short_opens_up_to_its_last_whole_chunk(recorded: Path, tmp_path: Path) -> None:
    whole = recorded.read_bytes()
    times = [update.time_ns for update in read(recorded)]
    counts, message = [], ""
    for tenth in range(1, 10):
        path = tmp_path / f"cut{tenth}.cuzkrec"
        path.write_bytes(whole[: len(whole) * tenth // 10])
        try:
            with Recording.open(path) as recording:
                found = [update.time_ns for update in recording.updates()]
                assert found == times[: len(found)]
                if len(found) < len(times):
                    assert recording.damage is not None
                    assert recording.damage.startswith(f"{path}: cannot be read from chunk {max(0, len(found) - 1)} on")
                counts.append(len(found))
        except FormatError as error:
            message = str(error)
            counts.append(0)
    assert message.startswith(f"{tmp_path}/cut")
    assert "is damaged" in message
    assert counts == sorted(counts)
    assert counts[-1] >= len(times) // 2


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A recording's bytes."""
    path = tmp_path_factory.mktemp("good") / "r.cuzkrec"
    write(path, stream(8))
    return path.read_bytes()


def outcome(path: Path) -> str:
    """What reading all of a file says: an error, else "" """
    try:
        with Recording.open(path) as recording:
            for update in recording.updates():
                assert len(update.events) >= 0
            for level in range(len(LEVELS)):
                list(recording.reader.level(level))
    except FormatError as error:
        return str(error)
    return ""


@given(data=st.data())
def test_a_file_with_wrong_bytes_is_read_or_refused(good: bytes, data: st.DataObject) -> None:
    content = bytearray(good)
    for _ in range(data.draw(st.integers(1, 12))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.cuzkrec"
        path.write_bytes(content)
        message = outcome(path)
        assert message == "" or message.startswith(f"{path}: ")
        assert "\n" not in message


def test_what_is_no_recording(tmp_path: Path) -> None:
    def refused(name: str, content: bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(FormatError) as caught:
            Recording.open(path)
        return str(caught.value).removeprefix(f"{path}: ")

    assert refused("empty", b"") == "is empty, expected a recording"
    assert refused("text", b"hello" * 40) == "is no recording (cuzk record makes one)"
    other = tmp_path / "other.sqlite"
    database = sqlite3.connect(other)
    database.execute("CREATE TABLE t (x)")
    database.close()
    assert refused("db", other.read_bytes()) == "is an SQLite database, but no recording of cuzk"
    with pytest.raises(FormatError, match="cannot be opened: no such file"):
        Recording.open(tmp_path / "missing")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("PRAGMA user_version=2", "was recorded by a newer version of cuzk"),
        ("DROP TABLE levels", "its tables are not those of a recording"),
        ("CREATE VIEW v AS SELECT 1", "its tables are not those of a recording"),
        ("CREATE TRIGGER t AFTER INSERT ON meta BEGIN SELECT 1; END", "its tables are not those of a recording"),
    ],
)
def test_other_tables_are_refused(recorded: Path, change: str, message: str) -> None:
    database = sqlite3.connect(recorded)
    database.execute(change)
    database.close()
    with pytest.raises(FormatError, match=message):
        Recording.open(recorded)


def test_a_view_in_place_of_the_chunks_is_refused(tmp_path: Path) -> None:
    """A view could compute for ever."""
    path = tmp_path / "r.cuzkrec"
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA application_id={APPLICATION_ID}")
    for name, statement in SCHEMA.items():
        database.execute("CREATE VIEW chunks AS SELECT 1" if name == "chunks" else statement)
    database.commit()
    database.close()
    with pytest.raises(FormatError, match="its tables are not those of a recording"):
        Recording.open(path)


@pytest.mark.parametrize("data", [b"", b"junk", zlib.compress(b"\xff" * 100), zlib.compress(bytes(1 << 20))[:500]])
def test_a_bad_chunk_ends_the_recording(recorded: Path, data: bytes) -> None:
    database = sqlite3.connect(recorded)
    database.execute("UPDATE chunks SET data = ? WHERE number = 4", (data,))
    database.commit()
    database.close()
    with Recording.open(recorded) as recording:
        found = list(recording.updates())
        assert len(found) == 5  # with the head
        assert recording.damage is not None
        assert "cannot be read from chunk 4 on" in recording.damage


def test_a_chunk_of_another_type_ends_the_recording(recorded: Path) -> None:
    database = sqlite3.connect(recorded)
    database.execute("UPDATE chunks SET data = 'text' WHERE number = 2")
    database.commit()
    database.close()
    with Recording.open(recorded) as recording:
        assert len(list(recording.updates())) == 3
        assert "the row is not one of a recording" in (recording.damage or "")


def test_a_file_that_exists_is_not_overwritten(recorded: Path, tmp_path: Path) -> None:
    with pytest.raises(CuzkError, match="exists already; name another file, or remove it"):
        RecordingWriter(recorded)
    with pytest.raises(CuzkError, match="cannot be made: no such file or directory"):
        RecordingWriter(tmp_path / "no" / "r.cuzkrec")


def test_a_recording_in_a_folder_that_cannot_be_written_opens(recorded: Path) -> None:
    recorded.parent.chmod(0o500)
    try:
        assert len(read(recorded)) > 4
    finally:
        recorded.parent.chmod(0o700)


def test_a_recording_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "r.cuzkrec"
    with RecordingWriter(path) as writer:
        for message in stream(10):
            writer.add(message)
        assert len(read(path)) >= 4
