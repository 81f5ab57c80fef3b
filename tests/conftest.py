"""What every test gets: folders of its own, and guards that fail it for whatever it leaves behind.

A test that means to log a warning asks for `expected_logs`; one that means to leave files, as a crash does, is marked
`leaves`. Warnings of Python and of Qt fail a test through pytest's and pytest-qt's settings in pyproject.toml.
tests/test_guards.py proves that each guard can fail.
"""

import fnmatch
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import psutil
import pytest

GRACE_S = 5.0
"""How long threads and processes that were told to end may take; only a test that leaks waits so long."""

RECURSION_LIMIT = sys.getrecursionlimit()

PYTHON_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Processes that Python starts once for all and keeps until it ends."""

# On CI the examples are the same in every run: a failure there belongs to the change.
hypothesis.settings.register_profile("default", deadline=None, max_examples=50, derandomize="CI" in os.environ)
hypothesis.settings.register_profile("fuzz", deadline=None, max_examples=20_000)
hypothesis.settings.load_profile("default")

ExpectedLogs = Callable[..., None]

GUARDED_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def pytest_configure() -> None:
    # A shell starts what it runs in the background with SIGINT ignored, and so would be what the tests interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("node"):
        snarkjs = item.config.rootpath / "node_modules/snarkjs/package.json"
        if shutil.which("node") is None or not snarkjs.exists():
            pytest.skip("needs node, and snarkjs in node_modules/ (make test installs it)")
    if item.get_closest_marker("gpu") and not Path("/dev/nvidiactl").exists():
        pytest.skip("needs a CUDA device")


@pytest.fixture(autouse=True)
def cuzk_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A new CUZK_HOME, with the home folder and the platform's folders inside: no test touches what is the user's.

    The path is short, because that of a socket may have 107 bytes only.
    """
    home = Path(tempfile.mkdtemp(prefix="cuzk-"))
    for name in [name for name in os.environ if name.startswith("CUZK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CUZK_HOME", str(home))
    monkeypatch.setenv("HOME", str(home / "user"))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        folder = home / "user" / name.lower()
        folder.mkdir(mode=0o700, parents=True)
        monkeypatch.setenv(name, str(folder))
    yield home
    shutil.rmtree(home)


@pytest.fixture(autouse=True)
def users_recursion_limit() -> None:
    """Take back what importing py_ecc does: at its limit, 100,000, C code has long left the stack."""
    sys.setrecursionlimit(RECURSION_LIMIT)


@pytest.fixture(autouse=True)
def guard_files(cuzk_home: Path, request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a socket, lock or spooled file, a half-written file, or a database that is still open."""
    yield
    meant = [pattern for mark in request.node.iter_markers("leaves") for pattern in mark.args]
    left = []
    for path in sorted(cuzk_home.rglob("*")):
        inside = path.relative_to(cuzk_home)
        in_runtime = "run" in inside.parts[:1] or "xdg_runtime_dir" in inside.parts[:2]
        half_done = path.name.endswith((".tmp", ".part", "-journal", "-wal", "-shm")) or path.name.startswith("tmp")
        is_meant = any(fnmatch.fnmatch(str(inside), pattern) for pattern in meant)
        if (in_runtime or half_done) and not is_meant and not path.is_dir():
            left.append(str(inside))
    if left:
        pytest.fail(f"the test left files behind: {', '.join(left)}", pytrace=False)


@pytest.fixture(autouse=True)
def guard_processes(cuzk_home: Path) -> Iterator[None]:
    """Fail a test that leaves a child process, or a detached one that was given this test's CUZK_HOME; and end it."""
    before = set(psutil.pids())
    yield
    leaked = [process for process in _processes_since(before) if _belongs_to(process, cuzk_home)]
    _, alive = psutil.wait_procs(leaked, timeout=GRACE_S)
    if alive:
        names = [f"{process.pid} ({_command_line(process)})" for process in alive]
        for process in alive:
            process.kill()
        psutil.wait_procs(alive, timeout=GRACE_S)
        pytest.fail(f"the test left processes running: {'; '.join(names)}", pytrace=False)


@pytest.fixture(autouse=True)
def guard_threads() -> Iterator[None]:
    """Fail a test that leaves a Python thread running, daemon or not."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + GRACE_S
    leaked = [
        thread
        for thread in threading.enumerate()
        # A foreign thread, such as Qt's, that once ran Python stays listed although it may have ended.
        if thread not in before and not isinstance(thread, threading._DummyThread)
    ]
    for thread in leaked:
        thread.join(max(0.0, deadline - time.monotonic()))
    names = [thread.name for thread in leaked if thread.is_alive()]
    if names:
        pytest.fail(f"the test left threads running: {', '.join(names)}", pytrace=False)


@pytest.fixture(autouse=True)
def guard_signals() -> Iterator[None]:
    """Fail a test that leaves a signal handled in another way, which every process started later would inherit."""
    before = {number: signal.getsignal(number) for number in GUARDED_SIGNALS}
    yield
    changed = [number.name for number, handler in before.items() if signal.getsignal(number) is not handler]
    for number, handler in before.items():
        signal.signal(number, handler)
    if changed:
        pytest.fail(f"the test left signals handled in another way: {', '.join(changed)}", pytrace=False)


@pytest.fixture
def expected_logs() -> ExpectedLogs:
    """Declare records that the test must cause: expected_logs(r"port \\d+ is in use", level=logging.ERROR).

    The pattern is searched in the message. A declared record that never comes fails the test too.
    """
    declared: list[tuple[re.Pattern[str], int]] = []

    def expect(pattern: str, level: int = logging.WARNING) -> None:
        declared.append((re.compile(pattern), level))

    expect.declared = declared  # type: ignore[attr-defined]
    return expect


@pytest.fixture(autouse=True)
def guard_logs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test in which something logs a warning or worse, on any logger, that the test did not declare."""
    handler = _Keeper(logging.WARNING)
    root = logging.getLogger()
    root.addHandler(handler)
    declared: list[tuple[re.Pattern[str], int]] = []
    if "expected_logs" in request.fixturenames:
        declared = request.getfixturevalue("expected_logs").declared
    yield
    root.removeHandler(handler)

    def matches(record: logging.LogRecord, pattern: re.Pattern[str], level: int) -> bool:
        return record.levelno == level and pattern.search(record.getMessage()) is not None

    stray = [record for record in handler.records if not any(matches(record, *entry) for entry in declared)]
    absent = [entry[0].pattern for entry in declared if not any(matches(record, *entry) for record in handler.records)]
    if stray:
        lines = [f"{record.levelname} {record.name}: {record.getMessage()}" for record in stray]
        pytest.fail("unexpected log records:\n" + "\n".join(lines), pytrace=False)
    if absent:
        pytest.fail(f"expected log records never came: {', '.join(absent)}", pytrace=False)


class _Keeper(logging.Handler):
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def _processes_since(before: set[int]) -> Iterator[psutil.Process]:
    for pid in psutil.pids():
        if pid not in before:
            try:
                yield psutil.Process(pid)
            except psutil.NoSuchProcess:
                continue


def _belongs_to(process: psutil.Process, home: Path) -> bool:
    """Whether `process` descends from this one or was started, even detached, with this CUZK_HOME; no zombies."""
    try:
        if process.status() == psutil.STATUS_ZOMBIE or any(name in _command_line(process) for name in PYTHON_HELPERS):
            return False
        if any(parent.pid == os.getpid() for parent in process.parents()):
            return True
        return bool(process.environ().get("CUZK_HOME") == str(home))
    except psutil.Error:
        return False


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()) or process.name()
    except psutil.Error:
        return "?"
