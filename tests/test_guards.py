"""Each guard of conftest.py lets a clean test pass and fails one that leaves something behind."""

from pathlib import Path

import pytest

pytest_plugins = ("pytester",)

SETTINGS = """
[pytest]
markers =
    leaves(*patterns): left on purpose
filterwarnings = error
qt_api = pyside6
qt_log_level_fail = WARNING
"""

LEAKS = """
    import gc, logging, socket, sqlite3, subprocess, sys, threading
    import conftest
    from PySide6.QtCore import QCoreApplication, QTimer, qWarning

    conftest.GRACE_S = 0.05
    kept = []

    def test_signal():
        import signal
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def test_thread():
        kept.append(threading.Event())
        threading.Thread(target=kept[0].wait, args=(60,), name="forgotten", daemon=True).start()

    def test_child():
        kept.append(subprocess.Popen([sys.executable, "-c", "input('of the test')"], stdin=subprocess.PIPE))

    def test_detached_process():
        start = "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)"
        subprocess.run([sys.executable, "-c", start], check=True)

    def test_socket(cuzk_home):
        (cuzk_home / "run").mkdir()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(cuzk_home / "run" / "daemon.sock"))

    def test_open_database(cuzk_home):
        (cuzk_home / "data").mkdir()
        kept.append(sqlite3.connect(cuzk_home / "data" / "jobs.sqlite"))
        kept[-1].execute("PRAGMA journal_mode=WAL")
        kept[-1].execute("CREATE TABLE jobs (id)")

    def test_half_written_file(cuzk_home):
        (cuzk_home / "data").mkdir()
        (cuzk_home / "data" / "proof.json.tmp").write_text("{")

    def test_log_record():
        logging.getLogger("cuzk").warning("the disk is nearly full")

    def test_log_record_of_another_level(expected_logs):
        expected_logs("disk")
        logging.getLogger("cuzk").warning("the disk is nearly full")
        logging.getLogger("cuzk").error("the disk is full")

    def test_log_record_that_never_comes(expected_logs):
        expected_logs("disk is full")

    def test_qt_warning():
        qWarning("QWidget: something is off")

    def test_slot(qtbot):
        def fail():
            raise ValueError("in the slot")
        QTimer.singleShot(0, fail)
        QCoreApplication.processEvents()

    def test_unclosed_file(tmp_path):
        open(tmp_path / "f", "w")
        gc.collect()
"""

# The line that the summary has for each of them.
COMPLAINTS = [
    "ERROR *::test_signal - *left signals handled in another way: SIGINT*",
    "ERROR *::test_thread - *left threads running: forgotten*",
    "ERROR *::test_child - *left processes running: *of the test*",
    "ERROR *::test_detached_process - *left processes running: *sleep 60*",
    "ERROR *::test_socket - *left files behind: run/daemon.sock*",
    "ERROR *::test_open_database - *left files behind: data/jobs.sqlite-shm, data/jobs.sqlite-wal*",
    "ERROR *::test_half_written_file - *left files behind: data/proof.json.tmp*",
    "ERROR *::test_log_record - *unexpected log records:*",
    "ERROR *::test_log_record_of_another_level - *unexpected log records:*",
    "ERROR *::test_log_record_that_never_comes - *expected log records never came: disk is full*",
    "FAILED *::test_qt_warning*",
    "FAILED *::test_slot - *",
    "FAILED *::test_unclosed_file - *",
]

REASONS = [
    "WARNING cuzk: the disk is nearly full",
    "ERROR cuzk: the disk is full",
    "*QWidget: something is off*",
    "*ValueError: in the slot*",
    "*unclosed file*",
]

CLEAN = """
    import logging, os, socket, subprocess, sys, threading
    from pathlib import Path
    import pytest

    def test_thread():
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()

    def test_process():
        subprocess.run([sys.executable, "-c", ""], check=True)

    def test_files(cuzk_home):
        (cuzk_home / "run").mkdir()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(cuzk_home / "run" / "daemon.sock"))
        (cuzk_home / "run" / "daemon.sock").unlink()

    @pytest.mark.leaves("run/*.lock")
    def test_files_left_on_purpose(cuzk_home):
        (cuzk_home / "run").mkdir()
        (cuzk_home / "run" / "daemon.lock").touch()

    def test_logs(expected_logs):
        expected_logs(r"disk is \\w+ full")
        logging.getLogger("cuzk").warning("the disk is nearly full")
        logging.getLogger("cuzk").info("not of interest")

    def test_folders(cuzk_home):
        assert os.environ["CUZK_HOME"] == str(cuzk_home)
        assert Path.home().is_relative_to(cuzk_home)
        assert "CUZK_CONFIG" not in os.environ
"""


def run_inside(pytester: pytest.Pytester, source: str) -> pytest.RunResult:
    """Run `source` as a test file of its own under the project's conftest.py."""
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text())
    pytester.makeini(SETTINGS)
    pytester.makepyfile(source)
    return pytester.runpytest_subprocess("-p", "no:xdist", "-p", "no:cacheprovider")


def test_every_leak_fails_its_test(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result = run_inside(pytester, LEAKS)
    result.assert_outcomes(passed=10, errors=10, failed=3)
    result.stdout.fnmatch_lines_random(COMPLAINTS + REASONS)


def test_clean_tests_pass(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUZK_CONFIG", "/etc/cuzk.toml")
    run_inside(pytester, CLEAN).assert_outcomes(passed=6)
