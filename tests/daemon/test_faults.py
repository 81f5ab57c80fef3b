"""What crashes, and what nevertheless holds: an accepted job ends, and nothing stays behind."""

import json
import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from cuzk_engine.client import CuzkError, EngineClient, JobState, SettingChange
from cuzk_engine.events import Incident
from tests.support.daemons import Daemon, Witnesses, finished, running, until, wait_for


@pytest.fixture
def home(cuzk_home: Path) -> Path:
    return cuzk_home


def test_a_device_process_that_dies_once_costs_no_job(home: Path, witnesses: Witnesses, tmp_path: Path) -> None:
    with running(home) as daemon, daemon.client() as client:
        before = daemon.device_pid()
        deadly = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=0.2, die=str(tmp_path / "died")))
        other = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=0.4))
        behind = client.submit(key_path=witnesses.key, witness_path=witnesses())
        done = [finished(client, job) for job in (deadly, other, behind)]
        assert [job.state for job in done] == [JobState.COMPLETED] * 3
        assert (done[0].attempts, done[2].attempts) == (2, 1)
        assert daemon.device_pid() != before
        assert "worker-died" in {incident.kind for incident in _incidents(client)}
        wait_for(lambda: client.identify().devices[0].state == "ready")
        with client.telemetry() as stream:
            assert next(stream).memory == {}  # what the dead process held was given back


def test_a_job_that_kills_its_process_fails_and_takes_no_other_along(home: Path, witnesses: Witnesses) -> None:
    with running(home) as daemon, daemon.client() as client:
        deadly = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=0.1, die="always"))
        innocent = [client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=0.15)) for _ in range(4)]
        dead = finished(client, deadly)
        assert dead.state is JobState.FAILED
        assert "was killed by signal SIGKILL" in dead.error
        assert "partition 1 of 1, phase msm" in dead.error
        assert "\n" not in dead.error
        assert [finished(client, job).state for job in innocent] == [JobState.COMPLETED] * 4


def test_sigkill_to_the_device_process_from_outside(home: Path, witnesses: Witnesses) -> None:
    with running(home) as daemon, daemon.client() as client:
        job = until(client, client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=0.5)), "running")
        os.kill(daemon.device_pid(), signal.SIGKILL)
        last = finished(client, job)
        assert (last.state, last.attempts) == (JobState.COMPLETED, 2)


def test_memory_shortage_is_tried_once_more_in_a_smaller_mode(home: Path, witnesses: Witnesses) -> None:
    with running(home) as daemon, daemon.client() as client:
        pid = daemon.device_pid()
        beside = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=0.4))
        cured = client.submit(key_path=witnesses.key, witness_path=witnesses(memory=True, reduced=1))
        last = finished(client, cured)
        assert (last.state, last.attempts) == (JobState.COMPLETED, 2)
        assert json.loads(client.fetch(last.id).proof_json)["reduced"] == 1
        hopeless = finished(client, client.submit(key_path=witnesses.key, witness_path=witnesses(memory=True)))
        assert (hopeless.state, hopeless.attempts) == (JobState.FAILED, 2)
        assert "1.95 KiB for msm were asked for, 10 B of" in hopeless.error
        assert finished(client, beside).attempts == 1
        assert daemon.device_pid() == pid
        assert [incident.kind for incident in _incidents(client)] == ["out-of-memory"]


def test_accepted_jobs_survive_a_killed_daemon(home: Path, witnesses: Witnesses) -> None:
    daemon = Daemon(home)
    try:
        daemon.start()
        with daemon.client() as client:
            done = finished(client, client.submit(key_path=witnesses.key, witness_path=witnesses(), request_id="done"))
            ran = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=0.5), request_id="ran")
            until(client, ran, "running")
            waited = [client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=0.1)) for _ in range(3)]
            streamed = client.submit_stream(witnesses().read_bytes(), key_path=witnesses.key)
        daemon.kill()
        assert (home / "run" / "daemon.lock").exists()
        assert (home / "run" / "engine.sock").exists()
        daemon.start()
        with daemon.client() as client:
            last = [finished(client, job) for job in (ran, *waited, streamed)]
            assert [job.state for job in last] == [JobState.COMPLETED] * 5
            assert last[0].attempts == 2
            assert client.job(done.id) == done
            assert client.submit(key_path=witnesses.key, witness_path=witnesses(), request_id="ran").id == ran.id
        daemon.stop()
    finally:
        daemon.close()


def test_a_stream_that_comes_again_after_a_crash(home: Path, witnesses: Witnesses) -> None:
    """It is compared with what the spool still has; once that has gone, only its size is known."""
    data, daemon = witnesses().read_bytes(), Daemon(home)
    name = {"key_path": witnesses.key, "request_id": "sector-7"}
    try:
        daemon.start()
        with daemon.client() as client:
            blockers = [client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=20)) for _ in range(2)]
            job = client.submit_stream(data, **name)
        daemon.kill()
        daemon.start()
        with daemon.client() as client:
            with pytest.raises(CuzkError, match=f"that of job {job.id}, which has another witness that was streamed"):
                client.submit_stream(data[:-1], **name)
            assert client.submit_stream(data, **name).id == job.id
            for blocker in blockers:
                client.cancel(blocker.id)
            assert finished(client, job).state is JobState.COMPLETED
        daemon.kill()
        daemon.start()
        with daemon.client() as client:
            assert client.submit_stream(data[:-1] + b"\1", **name).id == job.id
            with pytest.raises(CuzkError, match=f"that of job {job.id}, which has another witness that was streamed"):
                client.submit_stream(data[:-1], **name)
        daemon.stop()
    finally:
        daemon.close()


def test_a_job_that_kills_the_daemon_twice_is_given_up(home: Path, witnesses: Witnesses) -> None:
    daemon = Daemon(home)
    try:
        daemon.start()
        with daemon.client() as client:
            job = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=30))
        for _ in range(2):
            with daemon.client() as client:
                until(client, job, "running")
            daemon.kill()
            daemon.start()
        with daemon.client() as client:
            assert client.job(job.id).error == "the engine died 2 times while this job ran"
        daemon.stop()
    finally:
        daemon.close()


def test_sigterm_lets_the_running_finish_and_keeps_the_waiting(home: Path, witnesses: Witnesses) -> None:
    daemon = Daemon(home)
    try:
        daemon.start()
        with daemon.client() as client:
            runs = [client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=0.5)) for _ in range(2)]
            for job in runs:
                until(client, job, "running")
            waits = client.submit(key_path=witnesses.key, witness_path=witnesses())
            assert daemon.process is not None
            daemon.process.send_signal(signal.SIGTERM)
            wait_for(lambda: client.identify().state == "draining")
            with pytest.raises(CuzkError, match="draining"):
                client.submit(key_path=witnesses.key, witness_path=witnesses())
            assert [finished(client, job).state for job in runs] == [JobState.COMPLETED] * 2
        assert daemon.process.wait(10) == 0
        daemon.start()
        with daemon.client() as client:
            assert finished(client, waits).state is JobState.COMPLETED
        daemon.stop()
    finally:
        daemon.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(home: Path, witnesses: Witnesses, number: signal.Signals) -> None:
    daemon = Daemon(home)
    try:
        daemon.start()
        with daemon.client() as client:
            job = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=60, block=True))
            until(client, job, "running")
            children = psutil.Process(daemon.pid).children()
            assert daemon.process is not None
            daemon.process.send_signal(number)
            wait_for(lambda: client.identify().state == "draining")
            daemon.process.send_signal(number)
        started = time.monotonic()
        assert daemon.process.wait(10) == 0
        assert time.monotonic() - started < 8
        _, alive = psutil.wait_procs(children, timeout=3)
        assert not alive
        database = sqlite3.connect(home / "data" / "jobs.sqlite")
        assert database.execute("SELECT state FROM jobs").fetchall() == [("queued",)]
        database.close()
    finally:
        daemon.close()


def test_the_memory_limit_changes_between_jobs(home: Path, witnesses: Witnesses) -> None:
    with running(home) as daemon, daemon.client() as client:
        running_job = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=0.4))
        until(client, running_job, "running")
        before = daemon.device_pid()
        client.apply_settings([SettingChange("cpu.arena", "2MiB")])
        behind = client.submit(key_path=witnesses.key, witness_path=witnesses())
        done = [finished(client, job) for job in (running_job, behind)]
        assert [(job.state, job.attempts) for job in done] == [(JobState.COMPLETED, 1)] * 2
        device = client.identify().devices[0]
        assert (device.state, device.capacity) == ("ready", 2 << 20)
        assert device.pid != before
        client.apply_settings([SettingChange("cpu.arena", "3MiB")])  # at once, where nothing runs
        wait_for(lambda: client.identify().devices[0].capacity == 3 << 20)
        with pytest.raises(CuzkError, match=r"of at least 1 MiB"):
            client.apply_settings([SettingChange("cpu.arena", "1KiB")])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("memory.total_budget", "2GiB"),
        ("memory.safety_margin", "1GiB"),
        ("memory.eviction_min_idle", "1s"),
        ("synthesis.threads", "1"),
    ],
)
def test_what_a_device_process_has_for_life_changes_with_a_new_one(home: Path, key: str, value: str) -> None:
    with running(home) as daemon, daemon.client() as client:
        before = daemon.device_pid()
        client.apply_settings([SettingChange(key, value)])
        wait_for(lambda: daemon.device_pid() not in (0, before) and client.identify().devices[0].state == "ready")


def test_a_device_that_refuses_is_said_not_waited_for(home: Path, witnesses: Witnesses) -> None:
    with running(home, environment={"CUZK_TEST_REFUSE": "1"}) as daemon, daemon.client() as client:
        device = client.identify().devices[0]
        assert (device.state, device.reason) == ("failed", "the fake device was told to refuse")
        with pytest.raises(CuzkError, match="device cpu does not start: the fake device was told to refuse"):
            client.submit(key_path=witnesses.key, witness_path=witnesses())


def test_a_damaged_store_is_named(home: Path) -> None:
    (home / "data").mkdir()
    (home / "data" / "jobs.sqlite").write_bytes(b"this is no database" * 100)
    daemon = Daemon(home)
    try:
        daemon.start(wait=False)
        assert daemon.process is not None
        assert daemon.process.wait(20) == 1
        assert daemon.stderr.strip().splitlines()[-1].startswith("cuzk: error: ")
        assert "jobs.sqlite: the job store cannot be opened" in daemon.stderr
        assert "Traceback" not in daemon.stderr
    finally:
        daemon.close()


def test_finished_jobs_expire(home: Path, witnesses: Witnesses) -> None:
    with running(home, config='[jobs]\nretention = "1ms"\n') as daemon, daemon.client() as client:
        job = finished(client, client.submit(key_path=witnesses.key, witness_path=witnesses(), request_id="again"))

        def expired() -> bool:
            try:
                client.job(job.id)
            except CuzkError as error:
                return "has expired" in str(error)
            return False

        wait_for(expired, 15)
        assert client.jobs() == []
        assert client.submit(key_path=witnesses.key, witness_path=witnesses(), request_id="again").id != job.id


def test_log_lines_for_operators(home: Path, witnesses: Witnesses) -> None:
    with running(home) as daemon:
        with daemon.client() as client:
            named = client.submit(key_path=witnesses.key, witness_path=witnesses(), request_id="sector-7")
            finished(client, named)
            wait_for(lambda: "GPU_END" in daemon.stderr)
        lines = [line.split(",", 4) for line in daemon.stderr.splitlines() if line.startswith("TIMELINE,")]
        assert {line[3] for line in lines} == {"sector-7"}
        details = {line[2]: line[4] for line in lines}
        assert details["SYNTH_START"] == "kind=circom"
        assert details["GPU_START"] == "worker=0"
        assert details["GPU_END"].startswith("worker=0,gpu_ms=")
        assert all(int(line[1]) >= 0 for line in lines)


def test_no_core_file_and_its_own_session(home: Path) -> None:
    with running(home) as daemon:
        pid = daemon.device_pid()
        limits = Path(f"/proc/{pid}/limits").read_text()
        assert next(line for line in limits.splitlines() if line.startswith("Max core")).split()[4:6] == ["0", "0"]
        assert os.getsid(pid) == pid
        out = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=True)
        assert int(out.stdout) == daemon.pid


def _incidents(client: EngineClient) -> list[Incident]:
    with client.telemetry(history_ns=3600 * 10**9) as stream:
        return next(update.events.incidents for update in stream if update.events.incidents)
