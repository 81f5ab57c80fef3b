"""The log: bounded, coalesced, one line a record."""

import json
import logging
import logging.handlers
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuzk_engine.daemon import log as daemon_log
from cuzk_engine.daemon.log import Coalescer, DaemonLog
from cuzk_engine.events import LogLine


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DaemonLog]:
    opened = DaemonLog(tmp_path, level="info", form="text", foreground=False)
    yield opened
    opened.close()


def test_lines(log: DaemonLog, capsys: pytest.CaptureFixture[str]) -> None:
    log.logger.info("two\nlines of %s", "text")
    log.logger.debug("not this")
    log.logger.info("%s", "x" * 10_000)
    lines = log.path.read_text().splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("Z INFO two lines of text")
    assert len(lines[1]) < 4100
    log.set_form("json")
    log.set_level("debug")
    log.logger.debug("now this")
    assert json.loads(log.path.read_text().splitlines()[-1])["message"] == "now this"
    assert capsys.readouterr().err == ""


def test_the_file_has_a_largest_size(log: DaemonLog) -> None:
    file = log.logger.handlers[0]
    assert isinstance(file, logging.handlers.RotatingFileHandler)
    file.maxBytes = 1000
    log.logger.filters.clear()
    for number in range(100):
        log.logger.info("line %d %s", number, "x" * 100)
    sizes = [path.stat().st_size for path in log.path.parent.iterdir()]
    assert len(sizes) == daemon_log.OLD_FILES + 1
    assert max(sizes) <= 1000


def test_repeats_are_counted() -> None:
    now = 0.0
    coalescer = Coalescer(burst=3, window=10, clock=lambda: now)
    logger = logging.getLogger("test.repeats")
    logger.propagate = False
    logger.addFilter(coalescer)
    seen: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    logger.addHandler(Keep())
    for number in range(1000):
        logger.warning("job %d failed", number)
    logger.warning("something else")
    coalescer.flush(logger)
    assert seen == ["job 0 failed", "job 1 failed", "job 2 failed", "something else"]
    now = 11.0
    coalescer.flush(logger)
    assert seen[4:] == ["997 more like this in 10 s, the last: job 999 failed"]
    logger.warning("job %d failed", 1001)
    assert seen[-1] == "job 1001 failed"
    logger.filters.clear()
    logger.handlers.clear()


def test_the_timeline_of_a_detached_daemon_goes_to_the_file(log: DaemonLog) -> None:
    log.timeline("GPU_END", "a,b", "worker=1,gpu_ms=5")
    kind, elapsed, event, rest = log.path.read_text().rstrip("\n").split(",", 3)
    assert (kind, event, rest) == ("TIMELINE", "GPU_END", "a,b,worker=1,gpu_ms=5")
    assert int(elapsed) >= 0


def test_what_callers_name_cannot_add_lines(log: DaemonLog) -> None:
    log.timeline("GPU_END", "a\nTIMELINE,1,GPU_START,b\x1b[2J\r", "worker=1")
    log.logger.warning("%s: no such file", "k\x1b]0;x\x07\nz")
    first, second = log.path.read_text().rstrip("\n").split("\n")
    assert first.endswith(",GPU_END,a_TIMELINE,1,GPU_START,b_[2J_,worker=1")
    assert second.endswith(" WARNING k\ufffd]0;x\ufffd z: no such file")


def test_telemetry_gets_the_same_lines(log: DaemonLog) -> None:
    lines: list[LogLine] = []
    log.send_to(lines.append)
    log.logger.warning("something")
    assert [(line.level, line.message) for line in lines] == [("WARNING", "something")]


def test_a_full_disk_does_not_stop_the_daemon(log: DaemonLog, capsys: pytest.CaptureFixture[str]) -> None:
    file = log.logger.handlers[0]
    assert isinstance(file, logging.FileHandler)
    file.stream.close()
    file.stream = open("/dev/full", "w")  # noqa: SIM115 - the handler closes it
    log.logger.info("this cannot be written")
    assert capsys.readouterr().err == ""
