"""Starting, stopping and looking at a daemon from outside: true states, and nothing left behind."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from cuzk_engine.client import (
    DaemonError,
    EngineClient,
    ProcessState,
    daemon_status,
    restart_daemon,
    start_daemon,
    stop_daemon,
)
from cuzk_engine.client.instance import lock_path
from cuzk_engine.doctor.check import Verdict
from cuzk_engine.doctor.engine import judge
from cuzk_engine.errors import SettingError
from tests.support.certificates import make_certificate, tls
from tests.support.daemons import FAKE_RUNTIME, ROOT, Witnesses, finished, until, wait_for


@pytest.fixture(autouse=True)
def configuration(cuzk_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An engine with the fake device on a socket of its own; whatever a test left running is ended."""
    (cuzk_home / "config").mkdir()
    path = cuzk_home / "config" / "cuzk.toml"
    text = (
        f'[daemon]\nlisten = "unix://{cuzk_home}/run/e.sock"\nstatus_listen = ""\nallowed_paths = ["/tmp", "{ROOT}"]\n'
    )
    path.write_text(text)
    monkeypatch.setenv("CUZK_TEST_RUNTIME", FAKE_RUNTIME)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    yield path
    path.write_text(text)
    if daemon_status().pid is not None:
        stop_daemon(drain_timeout=0.1)


def cuzk(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cuzk_engine.cli.main", "daemon", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def run_files() -> list[str]:
    return [path.name for path in lock_path().parent.rglob("*") if not path.is_dir()]


def test_start_stop_leave_nothing() -> None:
    assert daemon_status().state is ProcessState.STOPPED
    started = start_daemon(started_by="window")
    assert (started.state, started.started_by, started.stale) == (ProcessState.READY, "window", False)
    assert started.build == started.installed_build
    assert started.pid is not None
    process = psutil.Process(started.pid)
    children = process.children()
    assert len(children) == 1
    assert process.ppid() != os.getpid()
    assert os.getsid(started.pid) != os.getsid(0)
    again = start_daemon()
    assert again.pid == started.pid
    assert "already running" in again.message
    stopped = stop_daemon()
    assert stopped.state is ProcessState.STOPPED
    assert not psutil.pid_exists(children[0].pid) or children[0].status() == psutil.STATUS_ZOMBIE
    assert run_files() == []
    assert "is not running" in stop_daemon().message
    second = start_daemon()
    assert second.pid != started.pid
    assert stop_daemon().state is ProcessState.STOPPED


def test_starts_at_the_same_moment_give_one_daemon() -> None:
    with ThreadPoolExecutor(3) as pool:
        started = list(pool.map(lambda _: start_daemon(), range(3)))
    assert {status.state for status in started} == {ProcessState.READY}
    assert len({status.pid for status in started}) == 1
    assert stop_daemon().state is ProcessState.STOPPED


def test_a_daemon_that_is_just_starting_can_be_stopped() -> None:
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(start_daemon)
        wait_for(lock_path().exists)
        assert stop_daemon().state is ProcessState.STOPPED
        assert run_files() == []
        error = starting.exception()
    assert error is None or isinstance(error, DaemonError)
    assert daemon_status().state is ProcessState.STOPPED


def test_a_start_elsewhere_names_the_daemon_that_runs() -> None:
    running = start_daemon()
    with pytest.raises(DaemonError, match=rf"already running at .*e\.sock \(pid {running.pid}\)"):
        start_daemon(listen=f"unix://{lock_path().parent}/other.sock")


def test_restart_and_if_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is not running" in restart_daemon(if_stale=True).message
    first = start_daemon()
    same = restart_daemon(if_stale=True)
    assert (same.pid, same.message) == (first.pid, "the running build is the installed one")
    monkeypatch.setattr("cuzk_engine.client.lifecycle.build_id", lambda: "another")
    stale = daemon_status()
    assert stale.stale
    assert "installed is another: restart it" in stale.message
    renewed = restart_daemon(if_stale=True)
    assert renewed.state is ProcessState.READY
    assert renewed.pid != first.pid


def test_a_port_that_the_system_chooses() -> None:
    first = start_daemon(listen="127.0.0.1:0")
    assert first.state is ProcessState.READY
    assert not first.address.endswith(":0")
    second = restart_daemon()
    assert (second.state, second.pid != first.pid) == (ProcessState.READY, True)
    third = restart_daemon(listen=f"unix://{lock_path().parent}/other.sock")  # another address than it has
    assert (third.state, third.address[-10:]) == (ProcessState.READY, "other.sock")
    assert stop_daemon().state is ProcessState.STOPPED
    assert run_files() == []


def test_a_restart_keeps_the_arguments(tmp_path: Path, configuration: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(configuration.read_text() + '[logging]\nlevel = "error"\n')
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    start_daemon(config=other, listen=address)
    again = restart_daemon()
    assert again.address == address
    with EngineClient(address) as client:
        assert next(s.value for s in client.settings() if s.key == "logging.level") == "error"
    assert stop_daemon().state is ProcessState.STOPPED


def test_a_configuration_named_by_a_relative_path(configuration: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = configuration.read_text() + '[logging]\nlevel = "error"\n'
    configuration.with_name("two.toml").write_text(text)
    monkeypatch.chdir(configuration.parent)
    monkeypatch.setenv("CUZK_CONFIG", "two.toml")
    with EngineClient(start_daemon().address) as client:
        assert next(s.value for s in client.settings() if s.key == "logging.level") == "error"


def test_a_configuration_that_a_running_engine_does_not_have_is_named(configuration: Path) -> None:
    first, second = (configuration.with_name(name) for name in ("one.toml", "two.toml"))
    for file in (first, second):
        file.write_text(configuration.read_text())
    start_daemon()
    assert start_daemon(config=first).message.endswith(
        f", started without --config; {first} was not read: `cuzk daemon restart --config {first}`"
    )
    restart_daemon(config=first)
    assert start_daemon(config=second).message.endswith(
        f", started with --config {first}; {second} was not read: `cuzk daemon restart --config {second}`"
    )
    for config in (first, None):
        assert start_daemon(config=config).message.endswith(")")


@pytest.mark.leaves("data/jobs.sqlite-*")
def test_after_kill_9_the_state_is_told_and_a_start_clears_up() -> None:
    first = start_daemon()
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(first.pid)] if psutil.pid_exists(first.pid) else [], timeout=5)
    crashed = daemon_status()
    assert crashed.state is ProcessState.CRASHED
    assert "ended without being asked to" in crashed.message
    assert cuzk("status").returncode == 4
    second = start_daemon()
    assert second.state is ProcessState.READY
    os.kill(second.pid or 0, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(second.pid)] if psutil.pid_exists(second.pid or 0) else [], timeout=5)
    assert "what a crash had left was removed" in stop_daemon().message
    assert "daemon.lock" not in run_files()
    for name in run_files():
        (lock_path().parent / name).unlink()


@pytest.mark.parametrize(
    "text", ["", "1", '{"pid": 1}', '{"pid": PID, "address": "x", "started_unix_ns": 0, "build": ""}']
)
def test_a_lock_file_without_a_lock_is_no_obstacle(text: str) -> None:
    lock_path().parent.mkdir(mode=0o700)
    lock_path().write_text(text.replace("PID", str(os.getpid())))
    assert daemon_status().state is ProcessState.CRASHED
    assert start_daemon().state is ProcessState.READY


def test_a_stopped_process_is_not_called_ready(witnesses: Witnesses) -> None:
    status = start_daemon()
    assert status.pid is not None
    os.kill(status.pid, signal.SIGSTOP)
    try:
        hung = daemon_status()
        assert hung.state is ProcessState.CRASHED
        assert "lives but does not answer" in hung.message
        with pytest.raises(DaemonError, match="stop it first"):
            start_daemon()
    finally:
        os.kill(status.pid, signal.SIGCONT)
    assert daemon_status().state is ProcessState.READY


def test_a_drain_that_takes_too_long_keeps_the_job(witnesses: Witnesses) -> None:
    status = start_daemon()
    with EngineClient(status.address) as client:
        job = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=2))
        until(client, job, "running")
    started = time.monotonic()
    assert stop_daemon(drain_timeout=0.2).state is ProcessState.STOPPED
    assert time.monotonic() - started < 10
    with EngineClient(start_daemon().address) as client:
        last = finished(client, job)
        assert (last.state, last.attempts) == ("completed", 1)


def test_stopping_says_what_is_kept(witnesses: Witnesses) -> None:
    with EngineClient(start_daemon().address) as client:
        jobs = [client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=0.5)) for _ in range(6)]
        until(client, jobs[0], "running")
    assert re.fullmatch(
        "the engine has stopped; [1-5] queued jobs? will run when it is started again", stop_daemon().message
    )
    with EngineClient(start_daemon().address) as client:
        assert {finished(client, job).state for job in jobs} == {"completed"}


def test_a_bad_configuration_is_one_line(configuration: Path) -> None:
    configuration.write_text("[daemon]\nlisen = 'x'\n")
    for action in ("start", "run", "status"):
        result = cuzk(action)
        assert result.returncode == 1
        assert result.stderr == (
            f"cuzk: error: {configuration}:2: unknown setting 'daemon.lisen'; did you mean 'daemon.listen'?\n"
        )


def test_a_configuration_that_was_broken_since_does_not_keep_an_engine_from_being_ended(configuration: Path) -> None:
    running = start_daemon()
    configuration.write_text("[daemon]\nlisen = 'x'\n")
    assert daemon_status().state is ProcessState.READY
    assert "already running" in start_daemon().message
    with pytest.raises(SettingError, match="lisen"):
        restart_daemon()
    assert daemon_status().pid == running.pid  # one that could not start again goes on
    assert stop_daemon().state is ProcessState.STOPPED


def test_an_engine_with_tls_is_seen_whatever_configuration_is_at_hand(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    files = make_certificate(tmp_path, "DNS:localhost,IP:127.0.0.1")
    other = tmp_path / "tls.toml"
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    head = f'[daemon]\nlisten = "0.0.0.0:{port}"\nstatus_listen = ""\n'
    other.write_text(head + tls(files))
    running = start_daemon(config=other)
    status = daemon_status()
    assert (status.state, status.pid) == (ProcessState.READY, running.pid), status.message
    assert judge(status).verdict is Verdict.OK
    assert "already running" in start_daemon().message
    other.write_text(head)  # says no longer what it asks for
    status = daemon_status()
    assert (status.state, status.pid) == (ProcessState.READY, running.pid)
    assert "refuses the certificate and token of this configuration" in status.message
    assert judge(status).verdict is not Verdict.PROBLEM
    assert stop_daemon().state is ProcessState.STOPPED


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
def test_other_machines_are_not_served_without_being_asked(listen: str) -> None:
    result = cuzk("run", "--listen", listen)
    assert result.returncode == 1
    assert "set daemon.tls_cert, daemon.tls_key, daemon.token_file too" in result.stderr


def test_a_socket_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DaemonError, match=r"/none/e\.sock: cannot be used: its folder does not exist"):
        start_daemon(listen=f"unix://{tmp_path}/none/e.sock")


def test_a_port_in_use_is_named_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        for action in ("run", "start"):
            started = time.monotonic()
            result = cuzk(action, "--listen", address)
            assert time.monotonic() - started < 5  # a time-out; alone it takes a fraction of a second
            assert result.returncode == 1
            assert f"{address} is in use by pid {os.getpid()} (" in result.stderr
    assert run_files() == []


def test_the_command_line() -> None:
    stopped = cuzk("status", "--json")
    assert stopped.returncode == 3
    assert json.loads(stopped.stdout)["state"] == "stopped"
    started = cuzk("start", "--json")
    assert (started.returncode, started.stderr) == (0, "")
    document = json.loads(started.stdout)
    assert {"state", "pid", "build", "stale", "address", "started", "devices", "jobs"} <= set(document)
    assert (document["state"], document["stale"], document["jobs"]) == ("ready", False, {"running": 0, "queued": 0})
    assert document["devices"][0]["id"] == "cpu"
    assert cuzk("status").returncode == 0
    again = cuzk("start")
    assert again.returncode == 0
    assert "already running" in again.stdout
    assert cuzk("run").returncode == 1
    assert cuzk("restart", "--if-stale").stdout == "the running build is the installed one\n"
    assert cuzk("stop").returncode == 0
    assert cuzk("stop").returncode == 0
    assert cuzk("status").returncode == 3
    assert cuzk().returncode == 2
    assert cuzk("begin").returncode == 2


def test_ctrl_c_ends_a_daemon_in_the_foreground() -> None:
    command = [sys.executable, "-m", "cuzk_engine.cli.main", "daemon", "run"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "ready at" in line:
                break
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(20) == 0
    assert "Traceback" not in rest
    assert "ended" in rest
    assert run_files() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_closed_standard_streams_are_no_trouble(witnesses: Witnesses, number: signal.Signals) -> None:
    command = f"exec {sys.executable} -m cuzk_engine.cli.main daemon run <&- >&- 2>&-"
    with subprocess.Popen(["sh", "-c", command]) as process:
        wait_for(lambda: daemon_status().state is ProcessState.READY, 30)
        with EngineClient(daemon_status().address) as client:
            job = client.submit(key_path=witnesses.key, witness_path=witnesses())
            assert finished(client, job).error == ""
        process.send_signal(number)
        assert process.wait(20) == 0
    assert run_files() == []


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_start_with_closed_standard_streams(closed: str) -> None:
    words = f"{sys.executable} -m cuzk_engine.cli.main daemon"
    assert subprocess.run(["sh", "-c", f"exec {words} start {closed}"], timeout=60, check=False).returncode == 0
    assert daemon_status().state is ProcessState.READY
    assert subprocess.run(["sh", "-c", f"exec {words} stop {closed}"], timeout=60, check=False).returncode == 0
    assert daemon_status().state is ProcessState.STOPPED
