"""Daemons for tests: real processes in a home folder of their own, on a unix socket or a free port."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from cuzk_engine.client import EngineClient, JobInfo
from tests.support.cases import DATA, case

ROOT = Path(__file__).resolve().parent.parent.parent
FAKE_RUNTIME = "tests.support.fake_runtime:make"
START_SECONDS = 60.0


class Daemon:
    """One daemon as a child of the test's process; `stop` ends it and checks that it ended well."""

    def __init__(
        self,
        home: Path,
        *,
        fake: bool = True,
        listen: str = "",
        config: str = "",
        environment: Mapping[str, str] | None = None,
        status_listen: str = "",
        module: str = "cuzk_engine.daemon",
    ) -> None:
        self.home = home
        self._module = module
        self.process: subprocess.Popen[bytes] | None = None
        self.address = listen or f"unix://{home}/run/engine.sock"
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CUZK_")},
            "CUZK_HOME": str(home),
            "HOME": str(home),
            "PYTHONPATH": str(ROOT),
            **({"CUZK_TEST_RUNTIME": FAKE_RUNTIME} if fake else {}),
            **(environment or {}),
        }
        for name in ("run", "config"):
            (home / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.config = home / "config" / "cuzk.toml"
        allowed = json.dumps([str(home), str(DATA), tempfile.gettempdir()])
        head = f'[daemon]\nstatus_listen = "{status_listen}"\n'
        if "allowed_paths" not in config:
            head += f"allowed_paths = {allowed}\n"
        self.config.write_text(head + config)

    def start(self, *, wait: bool = True) -> Daemon:
        reader, writer = os.pipe()
        command = [sys.executable, "-m", self._module, "--listen", self.address]
        command += ["--ready-fd", str(writer), "--started-by", "test"]
        try:
            with (self.home / "stderr.txt").open("wb") as errors:
                self.process = subprocess.Popen(
                    command,
                    env=self._environment,
                    pass_fds=(writer,),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                )
            os.close(writer)
            if wait:
                self._await_ready(reader)
        finally:
            os.close(reader)
        return self

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def stderr(self) -> str:
        return (self.home / "stderr.txt").read_text(errors="replace")

    @property
    def log(self) -> str:
        return (self.home / "log" / "daemon.log").read_text()

    def client(self) -> EngineClient:
        return EngineClient(self.address)

    def device_pid(self) -> int:
        with self.client() as client:
            return client.identify().devices[0].pid

    def stop(self) -> None:
        """SIGTERM, a clean end, and nothing left behind."""
        assert self.process is not None
        children = psutil.Process(self.pid).children(recursive=True)
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 0, self.stderr
        _, alive = psutil.wait_procs(children, timeout=5)
        assert not alive
        left = [path for path in (self.home / "run").rglob("*") if not path.is_dir()]
        assert not left

    def kill(self) -> None:
        """As a crash: SIGKILL to the supervisor; its device processes must end by themselves."""
        assert self.process is not None
        children = psutil.Process(self.pid).children(recursive=True)
        self.process.kill()
        self.process.wait(10)
        _, alive = psutil.wait_procs(children, timeout=5)
        assert not alive

    def close(self) -> None:
        """For fixtures: whatever the test did, nothing goes on."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)

    def _await_ready(self, reader: int) -> None:
        ready, _, _ = select.select([reader], [], [], START_SECONDS)
        assert ready, "the daemon did not become ready"
        line = os.read(reader, 65536)
        assert line, f"the daemon ended: {self.stderr}"
        message = json.loads(line)
        assert message.get("ready"), message
        self.address = message["address"]


@contextmanager
def running(home: Path, **options: Any) -> Iterator[Daemon]:
    daemon = Daemon(home, **options)
    try:
        yield daemon.start()
        if daemon.process is not None and daemon.process.poll() is None:
            daemon.stop()
    finally:
        daemon.close()


@contextmanager
def running_alone(**options: Any) -> Iterator[Daemon]:
    """One in a home folder of its own, whose path is short enough for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="cuzk-") as home, running(Path(home), **options) as daemon:
        yield daemon


class Witnesses:
    """Good witnesses of one small case, each with an instruction for the fake device."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._case = case("bn128", "mul_pub")
        self._count = 0
        self.key = self._case.path("circuit.zkey")

    def __call__(self, **todo: Any) -> Path:
        self._count += 1
        path = self._folder / f"w{self._count}.wtns"
        shutil.copy(self._case.path("witness.wtns"), path)
        if todo:
            Path(f"{path}.todo").write_text(json.dumps(todo))
        return path


def finished(client: EngineClient, job: JobInfo, seconds: float = 30.0) -> JobInfo:
    """The job in its last state."""
    deadline = time.monotonic() + seconds
    with client.watch(job.id) as changes:
        for info in changes:
            assert time.monotonic() < deadline
            job = info
    return job


def until(client: EngineClient, job: JobInfo, state: str) -> JobInfo:
    """The job when it has reached a state."""
    with client.watch(job.id) as changes:
        for info in changes:
            if info.state == state:
                return info
    raise AssertionError(f"the job ended without being {state}: {info}")


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """For what no event tells."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
