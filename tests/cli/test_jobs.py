"""`cuzk jobs`: an engine's jobs from the command line."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cuzk_engine.cli.job_text import details, seconds, summary, table
from cuzk_engine.client import EngineClient, JobInfo, JobState, PhaseTime, Priority
from tests.cli.conftest import ROOT, Cuzk, Result, command
from tests.support.daemons import Daemon, Witnesses, finished, running, running_alone, until, wait_for


@pytest.fixture(scope="module")
def shared() -> Iterator[Daemon]:
    with running_alone() as daemon:
        yield daemon


@pytest.fixture
def client(shared: Daemon) -> Iterator[EngineClient]:
    with shared.client() as connection:
        yield connection


@pytest.fixture
def witnesses(tmp_path: Path) -> Witnesses:
    return Witnesses(tmp_path)


@pytest.fixture
def jobs(cuzk: Cuzk, shared: Daemon) -> Cuzk:
    """`cuzk jobs … --daemon ADDR`."""

    def run(*arguments: Any) -> Result:
        return cuzk("jobs", *arguments, "--daemon", shared.address)

    return run


def submitted(jobs: Cuzk, *arguments: Any) -> str:
    result = jobs("submit", *arguments)
    assert (result.code, result.err) == (0, "")
    return result.out.strip()


def test_from_submitting_to_fetching(jobs: Cuzk, client: EngineClient, witnesses: Witnesses, tmp_path: Path) -> None:
    job = submitted(jobs, witnesses.key, witnesses(), "--label", "sector 7", "--priority", "high")
    watched = jobs("watch", job)
    assert (watched.code, watched.err) == (0, "")
    assert re.fullmatch(rf"job {job}: completed, 1 proof, \d+\.\d\d s on cpu\n", watched.out)
    proof, public = tmp_path / "proof.json", tmp_path / "public.json"
    fetched = jobs("fetch", job, proof, public)
    assert (fetched.code, fetched.out) == (0, f"{proof}, {public}: proof of job {job}\n")
    result = client.fetch(job)
    assert (proof.read_text(), public.read_text()) == (result.proof_json, result.public_json)
    assert (client.job(job).label, client.job(job).priority) == ("sector 7", Priority.HIGH)
    told = json.loads(jobs("fetch", job, proof, public, "--json").out)
    assert told == {"job": job, "curve": "bn128", "files": [{"proof": str(proof), "public": str(public)}]}


def test_several_witnesses_give_numbered_files(
    jobs: Cuzk, client: EngineClient, witnesses: Witnesses, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    done = jobs("submit", witnesses.key, *(witnesses() for _ in range(3)), "--watch")
    assert done.code == 0
    job, end = done.out.splitlines()
    assert end.startswith(f"job {job}: completed, 3 proofs, ")
    fetched = jobs("fetch", job[:8], tmp_path / "out/p.json", tmp_path / "out/s.json")
    assert fetched.out.endswith(
        f"out/p_1.json, {tmp_path}/out/s_1.json to "
        f"{tmp_path}/out/p_3.json, {tmp_path}/out/s_3.json: 3 proofs of job {job}\n"
    )
    for number, (proof, public) in enumerate(client.fetch(job).partitions, 1):
        assert (tmp_path / f"out/p_{number}.json").read_text() == proof
        assert (tmp_path / f"out/s_{number}.json").read_text() == public
    assert len(list((tmp_path / "out").iterdir())) == 6
    row = next(line for line in jobs().out.splitlines() if line.startswith(job[:8]))
    assert "  3 of 3  " in row


def test_the_table_tells_what_runs_and_what_waits(jobs: Cuzk, client: EngineClient, witnesses: Witnesses) -> None:
    runs = [submitted(jobs, witnesses.key, witnesses(seconds=600)) for _ in range(2)]
    waits = submitted(jobs, witnesses.key, witnesses(), "--label", "\x1b[31mred")
    for job in runs:
        until(client, client.job(job), "running")
    wait_for(lambda: all(client.job(job).progress == 0.5 for job in runs))
    listed = jobs("--state", "active")  # the action may be left out
    assert (listed.code, listed.err) == (0, "")
    header, *rows = listed.out.splitlines()
    assert header.split() == ["id", "circuit", "state", "done", "device", "submitted", "waited", "took", "label"]
    assert [row[:8] for row in rows] == [job[:8] for job in (waits, *reversed(runs))]
    assert "  queued, number 1  0 of 1, 0 %   -  " in rows[0]
    assert rows[0].endswith("   [31mred")  # what others named moves no cursor
    assert all("  running           0 of 1, 50 %  cpu  " in row for row in rows[1:])
    found = json.loads(jobs("--json", "list", "--state", "queued").out)["jobs"]
    assert [(job["id"], job["state"], job["queue_position"]) for job in found] == [(waits, "queued", 1)]
    shown = jobs("show", waits).out.splitlines()
    assert shown[0] == f"job {waits}"
    assert "  state        queued, number 1" in shown
    for job, state in ((runs[0], "running"), (waits, "queued")):
        told = f"job {job} has no proof yet: it is {state}; wait for it with `cuzk jobs watch {job[:8]}`"
        assert jobs("fetch", job[:8], "p.json", "s.json").error == told
    cancelled = jobs("cancel", *runs, waits)
    assert (cancelled.code, cancelled.err) == (0, "")
    assert f"{waits}: cancelled" in cancelled.out.splitlines()
    for job in runs:
        assert finished(client, client.job(job)).state is JobState.CANCELLED


def test_cancelling_again_is_no_error(jobs: Cuzk, client: EngineClient, witnesses: Witnesses) -> None:
    job = submitted(jobs, witnesses.key, witnesses(seconds=600))
    until(client, client.job(job), "running")
    assert jobs("cancel", job).out in (f"{job}: stops as soon as it can\n", f"{job}: cancelled\n")
    assert finished(client, client.job(job)).state is JobState.CANCELLED
    again = jobs("cancel", job)
    assert (again.code, again.out, again.err) == (0, f"{job}: cancelled\n", "")
    told = json.loads(jobs("cancel", job, "--json").out)
    assert told == {"jobs": [{"id": job, "state": "cancelled", "was_running": False}]}
    watched = jobs("watch", job)
    assert (watched.code, watched.out, watched.err) == (1, f"job {job}: cancelled\n", "")
    done = submitted(jobs, witnesses.key, witnesses())
    assert jobs("watch", done).code == 0
    assert jobs("cancel", done).out == f"{done}: completed\n"
    assert client.job(done).state is JobState.COMPLETED


def test_a_failed_job_is_told_with_its_reason(jobs: Cuzk, witnesses: Witnesses, tmp_path: Path) -> None:
    job = submitted(jobs, witnesses.key, witnesses(error="the witness is of another circuit"))
    watched = jobs("watch", job)
    reason = "the witness is of another circuit"
    assert (watched.code, watched.out, watched.err) == (1, f"job {job}: failed: {reason}\n", "")
    document = jobs("watch", job, "--json")
    assert (document.code, json.loads(document.out)["error"]) == (1, reason)
    assert f"  error        {reason}" in jobs("show", job).out.splitlines()
    fetched = jobs("fetch", job, tmp_path / "p.json", tmp_path / "s.json")
    assert fetched.code == 1
    assert fetched.error == f"job {job} has no proof: it failed: {reason}"
    assert not (tmp_path / "p.json").exists()


def test_one_request_is_one_job_and_its_id_names_it(jobs: Cuzk, witnesses: Witnesses) -> None:
    witness = witnesses()
    job = submitted(jobs, witnesses.key, witness, "--request-id", "sector-77")
    assert submitted(jobs, witnesses.key, witness, "--request-id", "sector-77") == job
    assert json.loads(jobs("watch", "sector-77", "--json").out)["id"] == job


def test_a_witness_is_sent_where_the_engine_may_not_read_it(
    jobs: Cuzk, shared: Daemon, client: EngineClient, witnesses: Witnesses
) -> None:
    witness = witnesses()
    job = submitted(jobs, witnesses.key, witness, "--stream")
    assert finished(client, client.job(job)).state is JobState.COMPLETED
    assert str(shared.home / "run" / "spool") in client.fetch(job).proof_json
    missing = jobs("submit", witnesses.key, witness.with_name("missing.wtns"), "--stream")
    assert (missing.code, missing.error) == (1, f"{witness.with_name('missing.wtns')}: no such file or directory")
    assert jobs("submit", witnesses.key, witness, witness, "--stream").code == 2


def test_no_word_of_a_witness(jobs: Cuzk, client: EngineClient, witnesses: Witnesses) -> None:
    witness = witnesses()
    job = submitted(jobs, witnesses.key, witness)
    finished(client, client.job(job))
    for arguments in (("list",), ("list", "--json"), ("show", job), ("show", job, "--json"), ("watch", job, "--json")):
        assert str(witness) not in jobs(*arguments).out


def test_the_list_is_cut_for_people_only(jobs: Cuzk, client: EngineClient, witnesses: Witnesses) -> None:
    many = [submitted(jobs, witnesses.key, witnesses()) for _ in range(3)]
    for job in many:
        finished(client, client.job(job))
    count = len(client.jobs())
    text = jobs("list", "--limit", "2").out.splitlines()
    assert len(text) == 4
    assert text[-1] == f"{count - 2} older ones are not shown: --limit"
    assert len(json.loads(jobs("list", "--json").out)["jobs"]) == count
    assert len(json.loads(jobs("list", "--json", "--limit", "1").out)["jobs"]) == 1


NO_TEXT = os.fsdecode(b"a\xff")


@pytest.mark.parametrize(
    "arguments",
    [
        ("submit", "KEY", "WITNESS", "--label", NO_TEXT),
        ("submit", "KEY", "WITNESS", "--request-id", NO_TEXT),
        ("submit", "KEY", "WITNESS", "--device", NO_TEXT),
        ("submit", "KEY", "WITNESS", "--label", NO_TEXT, "--stream"),
        ("watch", NO_TEXT),
        ("show", NO_TEXT * 20),
        ("cancel", NO_TEXT),
    ],
)
def test_what_is_no_text_is_refused_by_its_name(jobs: Cuzk, witnesses: Witnesses, arguments: tuple[str, ...]) -> None:
    files = {"KEY": witnesses.key, "WITNESS": witnesses()}
    result = jobs(*(files.get(argument, argument) for argument in arguments))
    assert (result.code, result.out) == (1, "")
    assert result.error.endswith("\\udcff' is not UTF-8, which the engine's protocol needs")


def test_an_empty_id_is_no_job(cuzk: Cuzk, cuzk_home: Path, witnesses: Witnesses, tmp_path: Path) -> None:
    with running(cuzk_home) as daemon, daemon.client() as client:
        job = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=600))
        for action, more in (("cancel", ()), ("show", ()), ("watch", ()), ("fetch", (tmp_path / "p", tmp_path / "s"))):
            result = cuzk("jobs", action, "", *more, "--daemon", daemon.address)
            assert (result.code, result.out, result.error) == (2, "", "the id of the job is empty")
        assert not client.job(job.id).state.ended
        client.cancel(job.id)
        finished(client, job)


def test_a_witness_that_cannot_be_read_while_it_is_sent(jobs: Cuzk, witnesses: Witnesses) -> None:
    result = jobs("submit", witnesses.key, "/proc/self/mem", "--stream")
    assert (result.code, result.out, result.error) == (1, "", "/proc/self/mem: input/output error")


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("replaced", [1, 2])
def test_an_interruption_leaves_all_files_of_a_proof(
    jobs: Cuzk,
    client: EngineClient,
    witnesses: Witnesses,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    partitions: int,
    number: signal.Signals,
    replaced: int,
) -> None:
    job = submitted(jobs, witnesses.key, *(witnesses() for _ in range(partitions)))
    finished(client, client.job(job))
    replace, calls = os.replace, []

    def interrupted(*paths: str) -> None:
        replace(*paths)
        calls.append(paths)
        if len(calls) == replaced:
            signal.raise_signal(number)

    monkeypatch.setattr(os, "replace", interrupted)
    (tmp_path / "out").mkdir()
    result = jobs("fetch", job, tmp_path / "out/p.json", tmp_path / "out/s.json")
    assert (result.code, result.err) == (0, "")
    assert len(list((tmp_path / "out").iterdir())) == 2 * partitions


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("watch", "nothing"), 1, "job 'nothing' is unknown"),
        (("cancel", "nothing"), 1, "job 'nothing' is unknown"),
        (("show", "00000000-0000-4000-8000-000000000000"), 1, "job '00000000-0000-4000-8000-000000000000' is unknown"),
        (("fetch", "nothing", "p.json", "s.json"), 1, "job 'nothing' is unknown"),
        (("submit", "/nowhere/k.zkey", "w.wtns"), 1, "lies outside the folders that may be read"),
        (("submit", "k.zkey"), 2, "the following arguments are required: WITNESS.wtns"),
        (("submit", "k.zkey", "w.wtns", "--priority", "highest"), 2, "argument --priority: invalid choice: 'highest'"),
        (("list", "--limit", "0"), 2, '"0": expected a number from 1 to 1000'),
        (("list", "--limit", "1001"), 2, '"1001": expected a number from 1 to 1000'),
        (("list", "--limit", "00000000199"), 2, "expected a number from 1 to 1000"),
        (("lists",), 2, "argument ACTION: invalid choice: 'lists'"),
        (("submit", "k.zkey", "w.wtns", "--circuit"), 2, "arguments: --circuit (see cuzk jobs submit --help)"),
        (("list", "--cert", "c"), 2, "--cert and --token go together"),
    ],
)
def test_errors_are_one_line(jobs: Cuzk, arguments: tuple[str, ...], code: int, message: str) -> None:
    result = jobs(*arguments)
    assert (result.code, result.out) == (code, "")
    assert message in result.error


class Knowing:
    """In a client's place: knows these jobs."""

    def __init__(self, known: list[JobInfo]) -> None:
        self._known = known

    def __enter__(self) -> Knowing:
        return self

    def __exit__(self, *exc: object) -> None: ...

    def jobs(self) -> list[JobInfo]:
        return self._known


def test_an_id_must_be_told_from_others(cuzk: Cuzk, monkeypatch: pytest.MonkeyPatch) -> None:
    known = [info(id="abcd0000-1"), info(id="abcd1111-2"), info(id="ffff0000-3", request_id="abcd")]

    monkeypatch.setattr("cuzk_engine.cli.jobs.connect", lambda args: Knowing(known))
    assert cuzk("jobs", "show", "abcd0").out.startswith("job abcd0000-1\n")
    assert cuzk("jobs", "show", "abcd").out.startswith("job ffff0000-3\n")
    known.pop()
    result = cuzk("jobs", "show", "abcd")
    assert (result.code, result.error) == (1, "abcd: the ids of 2 jobs begin so; give more of it")


def test_a_list_that_is_full_says_so(cuzk: Cuzk, monkeypatch: pytest.MonkeyPatch) -> None:
    known = [info(id=f"{number:08}-0") for number in range(1000)]

    monkeypatch.setattr("cuzk_engine.cli.jobs.connect", lambda args: Knowing(known))
    full = "of older ones than the newest 1,000 the engine tells by their ids only"
    assert cuzk("jobs", "list").out.splitlines()[-2:] == ["980 older ones are not shown: --limit", full]
    assert cuzk("jobs", "list", "--state", "active").out.splitlines() == ["no jobs", full]
    known.pop()
    assert full not in cuzk("jobs", "list").out


def test_a_request_is_found_however_many_jobs_came_after_it(
    jobs: Cuzk, client: EngineClient, witnesses: Witnesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submitted(jobs, witnesses.key, witnesses(), "--request-id", "the first of many")
    finished(client, client.job(job))
    monkeypatch.setattr(EngineClient, "jobs", lambda self: [])  # it is not among the newest any more
    for name in ("the first of many", job):
        shown = jobs("show", name)
        assert (shown.code, shown.out.splitlines()[0]) == (0, f"job {job}")


def test_outputs_that_cannot_be_written_are_told_before_anything_is(
    jobs: Cuzk, client: EngineClient, witnesses: Witnesses, tmp_path: Path
) -> None:
    job = submitted(jobs, witnesses.key, witnesses())
    finished(client, client.job(job))
    missing = jobs("fetch", job, tmp_path / "no/p.json", tmp_path / "s.json")
    assert missing.error == f"{tmp_path}/no/p.json: cannot be written: the folder {tmp_path}/no does not exist"
    assert jobs("fetch", job, tmp_path / "p.json", tmp_path / "p.json").code == 2
    assert not list(tmp_path.glob("*.json"))


def test_an_old_file_that_may_be_written_and_not_read(
    jobs: Cuzk, client: EngineClient, witnesses: Witnesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submitted(jobs, witnesses.key, witnesses())
    finished(client, client.job(job))
    old = tmp_path / "p.json"
    old.write_text("old")

    def refuse(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    result = jobs("fetch", job, old, tmp_path / "s.json")
    assert (result.code, result.error) == (
        1,
        f"{old}: cannot be replaced: the old file cannot be read: permission denied",
    )
    assert old.read_text() == "old"
    assert not (tmp_path / "s.json").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "/"])
def test_a_folder_has_no_numbered_files(jobs: Cuzk, client: EngineClient, witnesses: Witnesses, name: str) -> None:
    job = submitted(jobs, witnesses.key, witnesses(), witnesses())
    finished(client, client.job(job))
    result = jobs("fetch", job, name, "s.json")
    assert (result.code, result.out, result.error) == (1, "", f"{name or '.'}: cannot be written: is a folder")


def test_no_engine_and_its_own_engine(cuzk: Cuzk, cuzk_home: Path) -> None:
    nobody = cuzk("jobs", "--daemon", f"unix://{cuzk_home}/none.sock")
    assert (nobody.code, nobody.out) == (1, "")
    assert nobody.error.startswith(f"no engine answers at unix://{cuzk_home}/none.sock: start it")
    with running(cuzk_home):
        own = cuzk("jobs")
    assert (own.code, own.out, own.err) == (0, "no jobs\n", "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_ends_watching_and_not_the_job(
    shared: Daemon, client: EngineClient, witnesses: Witnesses, number: signal.Signals, code: int
) -> None:
    job = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=600))
    until(client, job, "running")
    words = command("jobs", "watch", job.id, "--daemon", shared.address)
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        # Its connection to the engine is made when it asks for the job.
        wait_for(lambda: any("socket" in link for link in links(process.pid)), 30)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, err) == (code, b"", b"")
    assert client.job(job.id).state is JobState.RUNNING
    client.cancel(job.id)
    finished(client, job)


def test_an_engine_that_dies_while_it_is_watched(cuzk_home: Path, witnesses: Witnesses) -> None:
    daemon = Daemon(cuzk_home)
    try:
        daemon.start()
        with daemon.client() as client:
            job = until(client, client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=600)), "running")
        words = command("jobs", "watch", job.id, "--daemon", daemon.address)
        process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_for(lambda: any("socket" in link for link in links(process.pid)), 30)
        daemon.kill()
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err.count(b"\n")) == (1, b"", 1)
        assert err.startswith(b"cuzk: error: no engine answers at ")
        daemon.start()  # and takes it up again
        with daemon.client() as client:
            client.cancel(until(client, job, "running").id)
            finished(client, job)
        daemon.stop()
    finally:
        daemon.close()


def links(pid: int) -> list[str]:
    try:
        return [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


# ---- words ----

SECOND = 10**9


def info(**other: Any) -> JobInfo:
    values: dict[str, Any] = {
        "id": "0f0f0f0f-aaaa",
        "request_id": "",
        "circuit_id": "c1",
        "circuit_name": "porep",
        "curve": "bn128",
        "label": "",
        "state": JobState.COMPLETED,
        "priority": Priority.NORMAL,
        "queue_position": 0,
        "phase": "",
        "progress": 1.0,
        "device": "cuda:0",
        "partitions": 1,
        "partitions_done": 1,
        "error": "",
        "submitted_unix_ns": 10 * SECOND,
        "started_unix_ns": 11 * SECOND,
        "finished_unix_ns": 15 * SECOND,
        "last_activity_unix_ns": 15 * SECOND,
        "phases": (PhaseTime("ntt", SECOND), PhaseTime("msm", 2 * SECOND)),
        "attempts": 1,
    }
    return JobInfo(**{**values, **other})


def test_times_of_a_table() -> None:
    other_day = table([info()])[1].split()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", other_day[7])
    assert other_day[9:] == ["1.00", "s", "4.00", "s"]
    never_ran = table([info(state=JobState.CANCELLED, started_unix_ns=0, device="", partitions_done=0)])[1].split()
    assert never_ran[-3:] == ["5.00", "s", "-"]
    ahead = table([info(submitted_unix_ns=12 * SECOND)])[1]  # an engine whose clock was set back meanwhile
    assert "  0.00 s  " in ahead


def test_details_name_what_there_is() -> None:
    lines = details(info(attempts=3, error="two\nlines"))
    assert lines[0] == "job 0f0f0f0f-aaaa"
    assert "  tried again  2 times" in lines
    assert "  circuit      porep (c1), BN254" in lines
    assert "  phases       ntt 1.00 s, msm 2.00 s" in lines
    assert "  error        two lines" in lines
    assert not any(line.split()[0] in ("label", "request", "phase") for line in lines[1:])


def test_details_tell_of_tries_beyond_the_first() -> None:
    def told(**values: Any) -> list[str]:
        return [line for line in details(info(**values)) if line.startswith("  tried again")]

    assert told(attempts=0) == told(attempts=1) == told(attempts=1, partitions=10) == []
    assert told(attempts=2) == ["  tried again  once"]
    assert told(attempts=2, partitions=10) == ["  tried again  partitions, each at most once"]


def test_words() -> None:
    assert summary(info()) == "job 0f0f0f0f-aaaa: completed, 1 proof, 4.00 s on cuda:0"
    assert [seconds(value * SECOND) for value in (0, 59, 60, 3599, 3600, 90_000)] == [
        "0.00 s", "59.00 s", "1 min 00 s", "59 min 59 s", "1 h 00 min", "25 h 00 min",
    ]  # fmt: skip
