"""`cuzk diagnose` and `export`, and `info` of a recording."""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cuzk_engine.events import Allocation, Cause, EventBatch, Gap, Incident, Kind, Lane, Mark, Sample, Span, host_lane
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.recording import report
from cuzk_engine.recording.writer import RecordingWriter
from cuzk_engine.telemetry.columns import encode_events
from tests.cli.conftest import ROOT, Cuzk, command, cuzk  # noqa: F401 - a fixture
from tests.recording.streams import MS, WALL, S, stream
from tests.support.daemons import wait_for

SETTINGS = {
    "gpus.gpu_workers_per_device": "1",
    "pipeline.prestage": "off",
    "pipeline.double_buffer": "true",
    "pipeline.evaluate": "host",
    "srs.residency": "auto",
}


def story(path: Path, evaluate_ms: int, partitions: int = 10) -> Path:
    """Job after job on a card: an evaluation, a pageable upload of 20 ms inside the lock, 100 ms of kernels."""
    device = pb.DeviceInfo(id="cuda:0", name="A card", kind="cuda", capacity=16 << 30, workers=1)
    settings = [pb.Setting(key=key, value=value) for key, value in SETTINGS.items()]
    with RecordingWriter(path) as writer:
        identity = pb.Identity(version="1", build="0123456789", devices=[device])
        writer.add(pb.TelemetryBatch(time_ns=0, wall_ns=WALL, identity=identity, settings=settings, memory_is_set=True))
        at = 0
        for number in range(partitions):
            events = EventBatch.empty()
            job = f"job-{number:04}"

            def span(kind: Kind, lane: str, start: int, length: int, size: int = 0, pinned: bool | None = None) -> None:
                row = Span(start, start + length, "cuda:0", lane, kind, job, 0, 0, size, pinned)  # noqa: B023
                events.spans.append(row)  # noqa: B023

            span(Kind.EVALUATE, host_lane(0), at, evaluate_ms * MS)
            locked = at + evaluate_ms * MS
            span(Kind.LOCK_WAIT, Lane.LOCK, locked, 0)
            span(Kind.UPLOAD_ABC, Lane.H2D, locked, 20 * MS, 100 << 20, False)
            span(Kind.MSM_ACCUMULATE, Lane.COMPUTE, locked + 20 * MS, 100 * MS)
            span(Kind.LOCK_HELD, Lane.LOCK, locked, 120 * MS)
            end = locked + 120 * MS
            events.allocations += [
                Allocation(at, "cuda:0", 6 << 30, "abc", 0, job),
                Allocation(end, "cuda:0", -(6 << 30), "abc", 0, job),
            ]
            events.samples.append(Sample(end, "cuda:0", utilisation=0.5, power=300.0))
            if number == 5:
                events.marks.append(Mark(at, "setting", "pre-staging → off"))
                events.gaps.append(Gap(at, locked, "cuda:0", Cause.HOST_STARVED, "a gap", job, 0))
                events.incidents.append(Incident(at, "cuda:0", "out-of-memory", job, "out of memory", 4 << 30, 1 << 30))
            batch = encode_events(events)
            batch.time_ns, batch.wall_ns, batch.dropped = end, WALL + end, 7 if number == 9 else 0
            batch.jobs.add(
                id=job, state=pb.JOB_STATE_COMPLETED, device="cuda:0", submitted_unix_ns=WALL,
                started_unix_ns=WALL + at, finished_unix_ns=WALL + end,
            )  # fmt: skip
            writer.add(batch)
            at = end
    return path


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return story(tmp_path / "a.cuzkrec", 80)


def test_diagnosis_of_one_recording(cuzk: Cuzk, recorded: Path) -> None:  # noqa: F811
    result = cuzk("diagnose", recorded)
    assert (result.code, result.err) == (0, "")
    lines = {" ".join(line.split()) for line in result.out.splitlines()}
    for expected in (
        "  workers 1 · pre-staging off · double buffering on · evaluation host · key residency auto",
        "cuda:0, A card, 16 GiB",
        "  kernels ran         1.00 s  50.0 %",
        "    host-starved      800 ms  40.0 %  10 gaps",
        "    pageable-upload   200 ms  10.0 %  10 gaps",
        "  lock held           1.20 s  60.0 %  200 ms of it without a kernel",
        "  partitions: 10, one in 200 ms of the time with work",
        "    kernels     100 ms   100 ms   100 ms",
        "    a, b, c  up  pageable     10  1000 MiB  200 ms  5.24 GB/s",
        "  cuda:0  6 GiB of 16 GiB  at 0.00 ms  abc 6 GiB",
        "  1. cuda:0: The next partition was not ready: 40.0 % of the time",
        "    at 1.00 s: pre-staging → off",
    ):
        assert " ".join(expected.split()) in lines, result.out
    assert "nothing lost" not in result.out
    assert "7 events were lost" in result.out
    assert "     → gpus.gpu_workers_per_device = 2 on cuda:0: a second worker" in result.out
    assert "     → pipeline.evaluate = device:" in result.out
    assert "     → pipeline.prestage = ahead:" in result.out
    assert "cuda:0: out of memory\n     4 GiB were asked for, 1 GiB were free" in result.out


def test_diagnosis_as_json(cuzk: Cuzk, recorded: Path) -> None:  # noqa: F811
    document = json.loads(cuzk("diagnose", recorded, "--json").out)
    (device,) = document["devices"]
    assert device["busy"] == pytest.approx(0.5)
    assert device["idle_by_cause"] == pytest.approx({"host-starved": 0.4, "pageable-upload": 0.1, "short": 0.0})
    assert device["partitions"]["whole"]["median_ms"] == pytest.approx(200)
    assert [finding["kind"] for finding in device["findings"]] == ["host-starved", "pageable-upload", "out-of-memory"]
    assert document["memory"]["cuda:0"]["peak"] == 6 << 30
    assert (document["lost"], document["damage"], document["settings"]["pipeline.prestage"]) == (7, None, "off")


@pytest.mark.parametrize("key", ["first_ns", "last_ns", "dropped_until_ns"])
@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 9999999999999999999])
def test_times_that_none_can_be_are_passed_over(cuzk: Cuzk, recorded: Path, key: str, number: int) -> None:  # noqa: F811
    with sqlite3.connect(recorded) as database:
        database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, str(number).encode()))
    assert cuzk("diagnose", recorded).code == 0


def test_a_job_of_impossible_times_does_not_end_the_diagnosis(cuzk: Cuzk, recorded: Path) -> None:  # noqa: F811
    with sqlite3.connect(recorded) as database:
        number, data = database.execute("SELECT number, data FROM chunks ORDER BY number").fetchone()
        batch = pb.TelemetryBatch.FromString(zlib.decompress(data))
        for submitted, started in ((-(2**63), 2**63 - 1), (2**63 - 1, -(2**63))):
            batch.jobs.add(
                id=f"j{started}", submitted_unix_ns=submitted, started_unix_ns=started, state=pb.JOB_STATE_COMPLETED
            )
        database.execute(
            "UPDATE chunks SET data = ? WHERE number = ?", (zlib.compress(batch.SerializeToString()), number)
        )
    assert cuzk("diagnose", recorded).code == 0


def test_a_part_of_the_time(cuzk: Cuzk, recorded: Path) -> None:  # noqa: F811
    document = json.loads(cuzk("diagnose", recorded, "--from", "400ms", "--to", "1s", "--json").out)
    assert document["seconds"] == pytest.approx(0.6)
    (device,) = document["devices"]
    assert device["partitions"]["whole"]["count"] == 3
    assert device["busy_seconds"] == pytest.approx(0.3)
    wrong = cuzk("diagnose", recorded, "--from", "1h")
    assert (wrong.code, wrong.error) == (2, f"{recorded}: nothing was recorded between --from and --to")
    assert cuzk("diagnose", recorded, "--to", "soon").code == 2


def test_two_recordings_side_by_side(cuzk: Cuzk, recorded: Path, tmp_path: Path) -> None:  # noqa: F811
    other = story(tmp_path / "b.cuzkrec", 20)
    result = cuzk("diagnose", recorded, other)
    assert result.code == 0
    rows = {" ".join(line.split()) for line in result.out.splitlines()}
    assert "kernels ran 50.0 % 71.4 % +21.4 points" in rows
    assert "host-starved 40.0 % 14.3 % -25.7 points" in rows
    assert "time with work a partition 200 ms 140 ms × 0.70" in rows
    assert "evaluate 80.0 ms 20.0 ms × 0.25" in rows
    both = json.loads(cuzk("diagnose", recorded, other, "--json").out)
    assert (both["a"]["seconds"], both["b"]["seconds"]) == (pytest.approx(2.0), pytest.approx(1.4))


def told(workers: str, prestage: str) -> list[pb.Setting]:
    key = "gpus.gpu_workers_per_device"
    return [
        pb.Setting(key=key, value="1", title="Workers per device"),
        pb.Setting(key="pipeline.prestage", value=prestage, title="Pre-staging"),
        *([pb.Setting(key=key, value=workers, title="Workers per device", device="cpu")] if workers else []),
    ]


def changing(path: Path) -> Path:
    """Twelve seconds of ten partitions, then nothing for as long. At 3 s, in the past when the recording began at 5 s,
    and at 9 s the device got other workers; at 9.5 s pre-staging went off."""
    device = pb.DeviceInfo(id="cpu", name="A processor", kind="cpu", capacity=1 << 30, workers=2)
    changes = {
        3: Mark(3000 * MS, "setting", "workers per device → 3", "cpu"),
        9: Mark(9000 * MS, "setting", "workers per device → 2", "cpu"),
        10: Mark(9500 * MS, "setting", "pre-staging → off"),
    }
    identity = pb.Identity(version="1", devices=[device])
    with RecordingWriter(path) as writer:
        writer.add(
            pb.TelemetryBatch(
                time_ns=5000 * MS, wall_ns=WALL + 5000 * MS, identity=identity, settings=told("3", "ahead"),
                memory_is_set=True,
            )
        )  # fmt: skip
        for second in range(1, 25):
            end = second * 1000 * MS
            events = EventBatch.empty()
            if second <= 10:
                events.spans.append(Span(end - 900 * MS, end, "cpu", Lane.COMPUTE, Kind.MSM_ACCUMULATE, f"{second}", 0))
            if second in changes:
                events.marks.append(changes[second])
            batch = encode_events(events)
            batch.time_ns, batch.wall_ns = end, WALL + end
            if second == 9:
                batch.settings.extend(told("2", "ahead"))
            if second == 10:
                batch.settings.extend(told("2", "off"))
            if second <= 10:
                batch.jobs.add(
                    id=f"{second}", state=pb.JOB_STATE_COMPLETED, device="cpu", submitted_unix_ns=WALL,
                    started_unix_ns=WALL + end - 1000 * MS, finished_unix_ns=WALL + end,
                )  # fmt: skip
            writer.add(batch)
    return path


@pytest.mark.parametrize(
    ("part", "settings"),
    [
        ((), "workers 2 · pre-staging off"),
        (("--from", "9s", "--to", "9300ms"), "workers 2 · pre-staging ahead"),
        (("--from", "3s", "--to", "7s"), "workers 3 · pre-staging ahead"),
        (("--to", "1500ms"), "pre-staging ahead"),  # nothing tells how many workers there were before the change
    ],
)
def test_the_settings_are_those_of_the_part_and_of_the_device(
    cuzk: Cuzk,  # noqa: F811
    tmp_path: Path,
    part: tuple[str, ...],
    settings: str,
) -> None:
    lines = [line.strip() for line in cuzk("diagnose", changing(tmp_path / "c.cuzkrec"), *part).out.splitlines()]
    assert settings in lines


def test_a_change_names_its_device(cuzk: Cuzk, tmp_path: Path) -> None:  # noqa: F811
    path = changing(tmp_path / "c.cuzkrec")
    lines = [line.strip() for line in cuzk("diagnose", path).out.splitlines()]
    assert [line.partition(": ")[2] for line in lines if line.startswith("at ")] == [
        "workers per device → 3 on cpu", "workers per device → 2 on cpu", "pre-staging → off",
    ]  # fmt: skip
    document = json.loads(cuzk("diagnose", path, "--json").out)
    assert document["workers"] == {"cpu": 2}
    assert [mark["device"] for mark in document["marks"] if mark["kind"] == "setting"] == ["cpu", "cpu", ""]


def test_time_without_work_is_no_part_of_a_partition(cuzk: Cuzk, tmp_path: Path) -> None:  # noqa: F811
    path = changing(tmp_path / "c.cuzkrec")
    rows = {" ".join(line.split()) for line in cuzk("diagnose", path, path).out.splitlines()}
    assert "time with work a partition 990 ms 990 ms × 1.00" in rows


def test_no_factor_beside_next_to_nothing() -> None:
    assert report._ratio(10.0, 20.0) == "× 2.00"
    assert report._ratio(1.0, 50391.13) == report._ratio(50391.13, 1.0) == report._ratio(0.0, 1.0) == ""


def test_a_file_that_is_no_recording(cuzk: Cuzk, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "x"
    path.write_text("hello")
    for arguments in (("diagnose", path), ("export", path, "--perfetto", tmp_path / "out")):
        result = cuzk(*arguments)
        assert (result.code, result.error) == (1, f"{path}: is no recording (cuzk record makes one)")
    assert not (tmp_path / "out").exists()


def cut(recording: Path, nbytes: int) -> Path:
    path = recording.with_name(f"cut{nbytes}.cuzkrec")
    path.write_bytes(recording.read_bytes()[:nbytes])
    return path


def test_a_file_that_was_cut_is_told_as_incomplete(cuzk: Cuzk, tmp_path: Path) -> None:  # noqa: F811
    whole = changing(tmp_path / "c.cuzkrec")
    assert "nothing lost\n" in cuzk("diagnose", whole).out
    assert "incomplete" not in cuzk("info", whole).out
    path = cut(whole, whole.stat().st_size - 10_000)
    text = cuzk("diagnose", path)
    assert text.code == 0
    assert "nothing lost" not in text.out
    assert ", incomplete\n" in text.out
    damage = json.loads(cuzk("info", path, "--json").out)["damage"]
    assert damage
    assert any(line.split(maxsplit=1) == ["incomplete", damage] for line in cuzk("info", path).out.splitlines())
    assert f"  incomplete: {damage}\n" in text.out
    assert f"incomplete: {path}: {damage}\n" in cuzk("export", path, "--perfetto", tmp_path / "t.json").out


@pytest.mark.parametrize("nbytes", [20_000, 40_000])
def test_a_file_that_was_cut_to_nothing_is_refused(cuzk: Cuzk, tmp_path: Path, nbytes: int) -> None:  # noqa: F811
    path = cut(changing(tmp_path / "c.cuzkrec"), nbytes)
    out = tmp_path / "t.json"
    for arguments in (("info", path), ("diagnose", path), ("export", path, "--perfetto", out)):
        result = cuzk(*arguments)
        assert (result.code, result.out) == (1, "")
        assert result.error.startswith(f"{path}: is damaged: nothing in it can be read (")
        assert f"it was cut, {nbytes:,} bytes of " in result.error
        assert "\n" not in result.error
    assert not out.exists()


def test_export(cuzk: Cuzk, recorded: Path, tmp_path: Path) -> None:  # noqa: F811
    out = tmp_path / "trace.json"
    result = cuzk("export", recorded, "--perfetto", out)
    assert (result.code, result.err) == (0, "")
    trace = json.loads(out.read_text())
    events: list[dict[str, Any]] = trace["traceEvents"]
    assert f"{len(events)} events" in result.out
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert set(names.values()) == {"kernels", "lock", "copies to the device", "worker 0", "idle"}
    (process,) = (e for e in events if e["name"] == "process_name")
    assert process["args"]["name"] == "cuda:0 (A card)"
    kernels = [e for e in events if e["ph"] == "X" and names[e["pid"], e["tid"]] == "kernels"]
    assert [(e["ts"], e["dur"]) for e in kernels][:2] == [(100_000.0, 100_000.0), (300_000.0, 100_000.0)]
    assert kernels[0]["args"] == {"job": "job-0000", "partition": 0, "worker": 0}
    (upload,) = (e for e in events if e["ph"] == "X" and e["ts"] == 80_000.0 and e["cat"] == "upload")
    assert (upload["args"]["bytes"], upload["args"]["memory"]) == (100 << 20, "pageable")
    memory = [e["args"]["bytes"] for e in events if e["ph"] == "C" and e["name"] == "memory: abc"]
    assert memory == [6 << 30, 0] * 10
    assert [e["args"]["%"] for e in events if e["name"] == "utilisation"] == [50.0] * 10
    instants = {e["name"] for e in events if e["ph"] == "i"}
    assert instants == {"setting: pre-staging → off", "incident: out-of-memory", "recording: recording began"}
    assert json.loads(cuzk("export", recorded, "--perfetto", out, "--json").out)["events"] == len(events)


def test_a_trace_leaves_out_what_ended_before_the_recording(cuzk: Cuzk, tmp_path: Path) -> None:  # noqa: F811
    start, path, out = 500 * S, tmp_path / "r.cuzkrec", tmp_path / "trace.json"
    events = EventBatch.empty()
    for at in (27 * S, start - 1, start, start + 40 * MS):
        events.incidents.append(Incident(at, "cpu", "out-of-memory", "job", f"at {at}"))
        events.marks.append(Mark(at, "setting", "pre-staging → off"))
        events.samples.append(Sample(at, "cpu", utilisation=0.5))
    for begin, end in ((-9 * S, -S), (-S, S)):
        events.gaps.append(Gap(start + begin, start + end, "cpu", Cause.QUEUE_EMPTY, "a gap"))
    events.allocations.append(Allocation(27 * S, "cpu", 64, "abc", 0, "job"))
    told = encode_events(events)
    told.time_ns, told.wall_ns = start, WALL + start
    with RecordingWriter(path) as writer:
        first, *later = stream(0.05, start=start)
        for sent in (first, told, *later):
            writer.add(sent)
    result = cuzk("export", path, "--perfetto", out)
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith("\nleft out: 7 events that ended before the recording began\n")
    written: list[dict[str, Any]] = json.loads(out.read_text())["traceEvents"]
    incidents = [event for event in written if event["name"] == "incident: out-of-memory"]
    assert [event["ts"] for event in incidents] == [0, 40_000.0]
    assert [event["ts"] for event in written if event["name"].startswith("setting")] == [0, 40_000.0]
    assert [event["ts"] for event in written if event["name"] == "utilisation"] == [0, 40_000.0, 50_000.0]
    idle = [event for event in written if event.get("tid") == 5 and event["ph"] == "X"]
    assert [(event["ts"], event["dur"]) for event in idle] == [(-1e6, 2e6)]
    memory = [(event["ts"], event["args"]["bytes"]) for event in written if event["name"] == "memory: abc"]
    assert memory == [(0, 64), (0, 128), (50_000.0, 64)]
    document = json.loads(cuzk("export", path, "--perfetto", out, "--json").out)
    assert (document["events"], document["left_out"]) == (len(written), 7)


def test_a_trace_does_not_replace_its_recording(cuzk: Cuzk, recorded: Path) -> None:  # noqa: F811
    result = cuzk("export", recorded, "--perfetto", recorded)
    assert result.error == f"{recorded}: is the recording itself; name another file for the trace"
    assert cuzk("diagnose", recorded).code == 0
    assert cuzk("export", recorded, "--perfetto", recorded.parent / "no" / "x").code == 1


def test_a_trace_into_a_pipe_or_a_device_leaves_it_what_it_is(cuzk: Cuzk, recorded: Path, tmp_path: Path) -> None:  # noqa: F811
    pipe, link, neighbour = tmp_path / "pipe", tmp_path / "link", tmp_path / "real.json.part"
    neighbour.write_text("somebody's")
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        text = pool.submit(pipe.read_text)
        wait_for(lambda: cuzk("export", recorded, "--perfetto", pipe).code == 0)  # from when somebody reads
        assert json.loads(text.result(10))["traceEvents"]
    assert pipe.is_fifo()
    link.symlink_to(tmp_path / "real.json")
    assert cuzk("export", recorded, "--perfetto", link).code == 0
    assert link.is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())["traceEvents"]
    assert neighbour.read_text() == "somebody's"


def test_odd_names_of_recordings(cuzk: Cuzk, recorded: Path, tmp_path: Path) -> None:  # noqa: F811
    odd = recorded.rename(tmp_path / os.fsdecode(b"n\xfc?#%41 \n.cuzkrec"))
    for arguments in (("diagnose", odd), ("info", odd), ("export", odd, "--perfetto", tmp_path / "t.json")):
        assert cuzk(*arguments).code == 0, arguments
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert cuzk("diagnose", pipe).error == f"{pipe}: is a pipe, expected a regular file"  # and waits for nobody


def test_info(cuzk: Cuzk, recorded: Path) -> None:  # noqa: F811
    document = json.loads(cuzk("info", recorded, "--json").out)
    assert (document["kind"], document["seconds"], document["events_lost"]) == ("recording", 2.0, 7)
    assert document["devices"] == ["cuda:0 (A card)"]
    text = cuzk("info", recorded)
    assert text.code == 0
    assert "cuda:0 (A card)" in text.out
