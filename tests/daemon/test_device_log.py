"""Log lines of a device process reach the daemon's log: with the device's name, at their level, bounded."""

import logging
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuzk_engine.client import CuzkError
from cuzk_engine.daemon.device_log import MOST_LINES, DeviceLog, write_lines
from cuzk_engine.daemon.log import DaemonLog
from cuzk_engine.events import LogLine
from tests.support.cases import TINY_CASES
from tests.support.daemons import finished, running, wait_for


@pytest.fixture
def told() -> Iterator[list[LogLine]]:
    lines: list[LogLine] = []
    device = DeviceLog(lines.append)
    yield lines
    device.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DaemonLog]:
    opened = DaemonLog(tmp_path, level="info", form="text", foreground=False)
    yield opened
    opened.close()


def line(level: str, message: str, wall_ns: int = 1_800_000_000_123_000_000) -> LogLine:
    return LogLine(5, wall_ns, level, message)


def test_what_the_engine_logs_is_told(told: list[LogLine]) -> None:
    before = time.time_ns()
    logger = logging.getLogger("cuzk_engine.pipeline.anything")
    logger.debug("not this")
    logger.info("%d points", 7)
    logger.warning("two\nlines")
    logging.getLogger("some.library").info("nor this")
    assert [(row.level, row.message) for row in told] == [("INFO", "7 points"), ("WARNING", "two lines")]
    assert before <= told[0].wall_ns <= time.time_ns()


def test_repeats_are_counted_where_they_are_made(told: list[LogLine]) -> None:
    for number in range(1000):
        logging.getLogger("cuzk_engine.devices.host").warning("again %d", number)
    assert 1 <= len(told) < 50


def test_lines_are_written_with_the_name_at_their_level_and_time(log: DaemonLog) -> None:
    rows = [
        line("WARNING", "memory is short"),
        line("ERROR", "cuda:1: gone"),
        line("DEBUG", "not this"),
        line("?", "x"),
    ]
    write_lines(log.logger, "cuda:1", rows)
    assert log.path.read_text().splitlines() == [
        "2027-01-15T08:00:00.123Z WARNING device cuda:1: memory is short",
        "2027-01-15T08:00:00.123Z ERROR cuda:1: gone",
        "2027-01-15T08:00:00.123Z INFO device cuda:1: x",
    ]


def test_one_batch_cannot_fill_the_log(log: DaemonLog) -> None:
    write_lines(log.logger, "cpu", [line("INFO", "x" * 10_000)] * 10_000)
    lines = log.path.read_text().splitlines()
    assert len(lines) == MOST_LINES + 1
    assert lines[-1].endswith("device cpu: more lines in its log than can be kept")
    assert all(len(text) < 4100 for text in lines)


def test_from_a_real_device_process_into_the_file_and_the_stream() -> None:
    """The warning that the plan is off comes from the device process; no plan is told then."""
    home = Path(tempfile.mkdtemp(prefix="cuzk-l-"))
    tiny = TINY_CASES[0]
    try:
        with running(home, fake=False, environment={"CUZK_TEST_NO_PLAN": "1"}) as daemon, daemon.client() as client:
            wait_for(lambda: "CUZK_TEST_NO_PLAN is set" in daemon.log, 30)
            (written,) = [text for text in daemon.log.splitlines() if "CUZK_TEST_NO_PLAN" in text]
            assert " WARNING device cpu: " in written
            stream = client.telemetry(history_ns=60_000_000_000)
            found: list[str] = []
            for update in stream:
                found += [row.message for row in update.events.logs if "CUZK_TEST_NO_PLAN" in row.message]
                if found:
                    break
            stream.cancel()
            assert found == [written.partition(" WARNING ")[2]]
            with pytest.raises(CuzkError, match="the memory plan is off"):
                client.plan(key_path=tiny.path("circuit.zkey"))
            job = client.submit(key_path=tiny.path("circuit.zkey"), witness_path=tiny.path("witness.wtns"))
            assert finished(client, job).error == ""
    finally:
        shutil.rmtree(home, ignore_errors=True)
