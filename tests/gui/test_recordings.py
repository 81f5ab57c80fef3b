"""Recordings in the window: all charts and tables of what was, nothing that can be changed, and back to the engine."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent, QFocusEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from cuzk_engine.client import CuzkError, TelemetryUpdate
from cuzk_engine.client.recording import Recording
from cuzk_engine.events import EventBatch
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.recording.contents import Contents
from cuzk_engine.recording.writer import RecordingWriter
from cuzk_engine.telemetry.columns import encode_events
from cuzk_gui.main import _parser, main
from cuzk_gui.models.findings import RECORDED
from cuzk_gui.models.loads import load, shown_stretch
from cuzk_gui.recording import RecordingFeed, open_recording
from cuzk_gui.window import MainWindow
from tests.gui import stories
from tests.gui.fakes import GIB, FakeEngine
from tests.gui.stories import GPU, FakeRecording

WAIT_MS = 10_000
SECOND = 1_000_000_000


def show(window: MainWindow, recording: FakeRecording, qtbot: QtBot) -> None:
    window.recordings.opener = lambda path: recording
    window.recordings.open("/runs/h200.cuzk")
    qtbot.waitUntil(lambda: window.recording is not None and window.recording.feed.done, timeout=WAIT_MS)
    window.tick()


def test_what_is_no_recording_is_said_before_a_window_opens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cuzk_gui.main._window", lambda arguments: pytest.fail("a window was opened"))
    (other := tmp_path / "notes.cuzk").write_text("no recording")
    write(whole := tmp_path / "whole.cuzkrec", 2)
    (cut := tmp_path / "cut.cuzkrec").write_bytes(whole.read_bytes()[:20_000])
    for path, words in ((tmp_path / "nope.cuzkrec", "no such file"), (other, "recording"), (cut, "is damaged")):
        assert main([str(path)]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"cuzk: error: {path}: ")
        assert words in error
        assert error.count("\n") == 1


class TestShown:
    def test_everything_is_there_and_said_to_be_past(self, window: MainWindow, qtbot: QtBot) -> None:
        recording = FakeRecording()
        show(window, recording, qtbot)
        assert recording.closed
        qtbot.waitUntil(lambda: window.top.pill.word == "Recording", timeout=WAIT_MS)
        for part in ("NVIDIA H200", "gpu-node-07:9820", "2026", "40 s", "build 77c1e4"):
            assert part in window.top.facts
        session = window.session
        assert session.recorded
        assert len(session.devices[GPU].tracks["compute"].rows) > 200
        assert len(session.devices[GPU].gaps.rows) > 50
        assert len(session.jobs) == len(recording.jobs)
        assert (len(session.marks), len(session.incidents), len(session.findings)) == (1, 1, 2)
        qtbot.waitUntil(lambda: len(window.shown.findings.cards) == 3, timeout=WAIT_MS)
        assert window.shown.idle.title == "Idle time, whole recording"
        qtbot.waitUntil(lambda: any("pageable upload" in line for line in window.shown.idle.lines), timeout=WAIT_MS)
        view = window.scene.view
        assert not view.following
        assert (view.start, view.end) == (0.0, pytest.approx(40.4))

    def test_nothing_can_be_changed(self, window: MainWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        show(window, FakeRecording(), qtbot)
        shown = window.shown
        qtbot.waitUntil(lambda: bool(shown.devices.rows) and shown.devices.whole, timeout=WAIT_MS)
        for row in shown.devices.rows.values():
            assert not row.control.isEnabled()
            assert "recording" in row.control.toolTip()
        card = shown.devices.cards[GPU]
        assert not card.workers.isEnabled()
        assert card.plan.isHidden()
        qtbot.waitUntil(lambda: (GPU, "pageable-upload") in shown.findings.cards, timeout=WAIT_MS)
        finding = shown.findings.cards[GPU, "pageable-upload"]
        assert not finding.button.isEnabled()
        assert finding.reason.text() == RECORDED
        dialog = shown.show_incident(1)
        assert dialog is not None
        assert dialog.chart is not None
        assert not any(button.isEnabled() for _, button, _ in dialog.remedies)
        assert shown.detail._cancel.isHidden()
        assert shown.detail._save.isHidden()
        assert not window.menu.save.isEnabled()
        assert window.top.prove.isHidden()
        assert engine.changes == []

    def test_back_to_the_engine_which_went_on(self, window: MainWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        live = window.session
        show(window, FakeRecording(), qtbot)
        assert window.session is not live
        window.proofs.prove_demo()
        qtbot.waitUntil(lambda: live.jobs.get("job-1") is not None, timeout=WAIT_MS)
        qtbot.waitUntil(window.top.live.isVisible, timeout=WAIT_MS)
        window.top.live.click()
        assert window.session is live
        assert window.recording is None
        qtbot.waitUntil(lambda: window.top.pill.word == "Ready", timeout=WAIT_MS)
        assert window.top.prove.isVisible()
        assert window.top.live.isHidden()

    def test_another_one_takes_its_place(self, window: MainWindow, qtbot: QtBot) -> None:
        show(window, FakeRecording(), qtbot)
        first = window.recording
        show(window, FakeRecording(length_s=20), qtbot)
        assert window.recording is not first
        assert window.scene.view.end == pytest.approx(20.2)
        assert window.pages.count() == 3  # the engine's, the one shown while one is opened, the recording

    def test_follow_shows_the_whole_again(self, window: MainWindow, qtbot: QtBot) -> None:
        show(window, FakeRecording(), qtbot)
        window.scene.view.zoom(0.1)
        window.scene.view.follow()
        assert window.scene.view.start == 0.0
        assert not window.scene.view.following

    def test_times_of_its_jobs_end_with_it(self, window: MainWindow, qtbot: QtBot) -> None:
        show(window, FakeRecording(), qtbot)
        clock = window.session.jobs.clock()
        assert clock == window.session.latest_ns + window.session.wall_offset_ns
        assert clock < 1_800_000_000 * SECOND


class TestSelection:
    @pytest.mark.parametrize("read_first", [2, 3, 15])
    def test_the_newest_job_however_much_was_read_by_the_first_frame(
        self, window: MainWindow, qtbot: QtBot, read_first: int
    ) -> None:
        recording, steps = FakeRecording(), Steps(read_first)
        recording._wait = steps  # type: ignore[assignment]
        self._open(window, recording, qtbot)
        QApplication.sendEvent(window.shown.jobs, QFocusEvent(QEvent.Type.FocusIn, Qt.FocusReason.TabFocusReason))
        assert window.shown.jobs.selected == ""
        steps.all.set()
        qtbot.waitUntil(lambda: window.recording is not None and window.recording.feed.done, timeout=WAIT_MS)
        window.shown.show_slow()
        newest = max(recording.jobs, key=lambda job: job.submitted_unix_ns)
        assert window.shown.jobs.selected == newest.id
        assert window.shown.detail.job_id == newest.id

    def test_what_the_user_chose_meanwhile_stays(self, window: MainWindow, qtbot: QtBot) -> None:
        recording, steps = FakeRecording(), Steps(3)
        recording._wait = steps  # type: ignore[assignment]
        self._open(window, recording, qtbot)
        shown = window.shown
        chosen = shown.session.jobs.order[-1]
        shown.jobs.select(chosen)
        steps.all.set()
        qtbot.waitUntil(lambda: window.recording is not None and window.recording.feed.done, timeout=WAIT_MS)
        shown.show_slow()
        assert shown.jobs.selected == chosen

    def _open(self, window: MainWindow, recording: FakeRecording, qtbot: QtBot) -> None:
        window.recordings.opener = lambda path: recording
        window.recordings.open("/runs/h200.cuzk")
        qtbot.waitUntil(lambda: window.session.recorded and len(window.session.jobs) > 0, timeout=WAIT_MS)
        window.shown.show_slow()


class Steps:
    """Lets so many messages of a recording be read, and the others once ``all`` is set."""

    def __init__(self, first: int) -> None:
        self.all = threading.Event()
        self._left = first

    def wait(self, timeout: float) -> bool:
        self._left -= 1
        return self._left >= 0 or self.all.wait(timeout)


class TestOpening:
    def test_a_long_one_comes_in_slices(self, window: MainWindow, qtbot: QtBot) -> None:
        go = threading.Event()
        window.recordings.opener = lambda path: FakeRecording(wait=go)
        window.recordings.open("/runs/h200.cuzk")
        qtbot.waitUntil(lambda: window.top.pill.word == "Opening, 0 %", timeout=WAIT_MS)
        assert window.recording is not None
        assert not window.recording.feed.done
        assert window.pages.cover.text() == "Opening h200.cuzk…"
        go.set()
        qtbot.waitUntil(lambda: window.top.pill.word == "Recording", timeout=WAIT_MS)

    def test_until_it_is_known_what_it_is_neither_it_nor_the_engine_is_shown(
        self, window: MainWindow, qtbot: QtBot
    ) -> None:
        go = threading.Event()

        def slow(path: Path) -> FakeRecording:
            assert go.wait(30)
            return FakeRecording()

        window.recordings.opener = slow
        window.recordings.open("/runs/h200.cuzk")
        assert window.pages.currentWidget() is window.pages.cover
        view = window.recording
        assert view is not None
        qtbot.waitUntil(lambda: view._is_built, timeout=WAIT_MS)
        assert window.pages.currentWidget() is window.pages.cover
        go.set()
        qtbot.waitUntil(lambda: window.pages.currentWidget() is view.workspace, timeout=WAIT_MS)
        assert window.shown is view.workspace

    def test_nothing_is_said_to_be_missing_while_it_is_read(self, window: MainWindow, qtbot: QtBot) -> None:
        go = threading.Event()

        class Empty(FakeRecording):
            def updates(self, *, columns: bool = False) -> Iterator[TelemetryUpdate]:
                first = next(super().updates(columns=columns))
                yield replace(first, events=EventBatch.empty(), jobs=[])
                assert go.wait(30)

            def diagnosis(self) -> EventBatch:
                return EventBatch.empty()

        window.recordings.opener = lambda path: Empty()
        window.recordings.open("/runs/h200.cuzk")
        qtbot.waitUntil(lambda: window.shown is not window.live, timeout=WAIT_MS)
        findings, detail = window.shown.findings, window.shown.detail
        qtbot.waitUntil(lambda: findings._empty.text() == "The recording is still being read.", timeout=WAIT_MS)
        assert detail._none.text() == ""
        go.set()
        qtbot.waitUntil(lambda: findings._empty.text() == "The recording holds none for this device.", timeout=WAIT_MS)
        assert detail._none.text() == "The recording holds no job."

    def test_going_back_does_not_wait_for_the_reading_to_end(self, window: MainWindow, qtbot: QtBot) -> None:
        go = threading.Event()
        window.recordings.opener = lambda path: FakeRecording(wait=go)
        window.recordings.open("/runs/h200.cuzk")
        qtbot.waitUntil(lambda: window.shown is not window.live, timeout=WAIT_MS)
        window.recordings.close()
        assert window.pages.currentWidget() is window.live
        (ending,) = window.recordings._ending
        assert not ending.close(0.0)  # it still waits for its file
        go.set()
        assert ending.close(5.0)

    def test_closing_while_it_opens(self, window: MainWindow, qtbot: QtBot) -> None:
        go = threading.Event()
        window.recordings.opener = lambda path: FakeRecording(wait=go)
        window.recordings.open("/runs/h200.cuzk")
        feed = window.recording.feed
        threading.Timer(0.05, go.set).start()
        window.recordings.close()
        assert feed.close(5.0)
        assert not feed.done

    def test_a_damaged_one_is_shown_as_far_as_it_goes(self, window: MainWindow, qtbot: QtBot) -> None:
        show(window, FakeRecording(broken=8), qtbot)
        qtbot.waitUntil(window.notice.isVisible, timeout=WAIT_MS)
        assert window.notice.label.text() == "run.cuzk: cannot be read from 16 s on"
        assert window.session.seconds(window.session.latest_ns) == pytest.approx(16.0)

    def test_what_is_none_is_one_line(self, window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
        file = tmp_path / "notes.txt"
        file.write_text("no recording")
        window.recordings.open(str(file))
        qtbot.waitUntil(window.notice.isVisible, timeout=WAIT_MS)
        assert "notes.txt" in window.notice.label.text()
        assert "no recording" in window.notice.label.text()
        assert window.recording is None

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(CuzkError, match=r"gone\.cuzk"):
            open_recording(tmp_path / "gone.cuzk")

    def test_a_fault_of_ours_is_said(self, qtbot: QtBot) -> None:
        class Wrong(FakeRecording):
            def updates(self, *, columns=False):
                raise ZeroDivisionError("oops")

        feed = RecordingFeed(Path("x"), lambda path: Wrong())
        with qtbot.waitSignal(feed.failed) as failed:
            qtbot.waitUntil(lambda: feed.tick() and feed.done, timeout=WAIT_MS)
        assert failed.args == ["internal error: ZeroDivisionError: oops"]
        assert feed.close()

    def test_dropped_on_the_window(self, window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
        file = tmp_path / "run"
        file.write_bytes(b"SQLite format 3\x00" + bytes(200))
        opened: list[str] = []
        window.recordings.opener = lambda path: opened.append(str(path)) or FakeRecording()  # type: ignore[func-returns-value]
        data = QMimeData()
        data.setUrls([QUrl.fromLocalFile(str(file))])
        window.dropEvent(
            QDropEvent(
                QPointF(5, 5), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
            )
        )
        qtbot.waitUntil(lambda: window.recording is not None and window.recording.feed.done, timeout=WAIT_MS)
        assert opened == [str(file)]

    def test_named_on_the_command_line(self) -> None:
        assert _parser().parse_args(["run.cuzk"]).recording == "run.cuzk"
        assert _parser().parse_args([]).recording is None


def write(path: Path, seconds: int) -> None:
    """A file as `cuzk record` writes it."""
    now = 5_000 * SECOND
    begin = now - seconds * SECOND
    events, _ = stories.minute(now, length_s=seconds, wall=1_790_000_000 * SECOND - now)
    first = pb.TelemetryBatch(
        time_ns=begin,
        wall_ns=1_790_000_000 * SECOND - now + begin,
        identity=pb.Identity(
            build="77c1e4a0b2",
            version="1",
            state="ready",
            devices=[pb.DeviceInfo(id=GPU, name="NVIDIA H200", kind="cuda", capacity=stories.CAPACITY, state="ready")],
        ),
        settings=[pb.Setting(key="pipeline.prestage", value="ahead", type="enum", live=True)],
        memory=[pb.MemoryByPurpose(device=d, purpose=p, bytes=n) for (d, p), n in stories.ledger().items()],
        memory_is_set=True,
    )
    batch = encode_events(events)
    batch.time_ns, batch.wall_ns = now, 1_790_000_000 * SECOND
    with RecordingWriter(path, address="gpu-node-07:9820") as writer:
        writer.add(first)
        writer.add(batch)


def test_a_real_file(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    file = tmp_path / "run.cuzk"
    write(file, 40)
    window.recordings.open(str(file))
    qtbot.waitUntil(lambda: window.recording is not None and window.recording.feed.done, timeout=WAIT_MS)
    session = window.session
    qtbot.waitUntil(lambda: "gpu-node-07:9820" in window.top.facts, timeout=WAIT_MS)
    assert "NVIDIA H200" in window.top.facts
    assert len(session.devices[GPU].gaps.rows) > 50
    assert session.devices[GPU].memory.total > 40 * GIB
    record = session.incidents.records[0]
    assert record.incident.picture is not None
    assert record.incident.picture.remedies[0].value == "locked"
    assert window.shown.show_incident(1) is not None


def test_it_says_what_cuzk_diagnose_says(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    """Also of the time before the first kernel, and whatever the engine told while it ran."""
    file = tmp_path / "run.cuzk"
    write(file, 40)
    window.recordings.open(str(file))
    qtbot.waitUntil(lambda: window.recording is not None and window.recording.feed.done, timeout=WAIT_MS)
    with Recording.open(file) as recording:
        contents = Contents.load(recording)
    summary = contents.summary(GPU)
    window.shown.show_slow()
    session, shown = window.session, window.shown
    stretch = shown_stretch(session, shown.scene.start_ns, shown.scene.end_ns)
    assert stretch == (contents.start_ns, contents.end_ns)
    times = load(session, session.devices[GPU], *stretch)
    assert (times.measured, times.kernels, times.lock) == (
        summary.shares.window,
        summary.shares.busy,
        summary.shares.held,
    )
    assert {row.cause: row.ns for row in times.idle} == dict(summary.idleness.by_cause())
    assert times.unexplained == summary.idleness.short_ns
    told = {f.kind: (f.title, f.evidence, f.remedies) for f in session.findings.of(GPU)}
    assert told == {f.kind: (f.title, f.evidence, f.remedies) for f in summary.findings}

    def says_of_what() -> bool:
        window.shown.show_slow()
        return shown.idle.title == "Idle time, whole recording"

    qtbot.waitUntil(says_of_what, timeout=WAIT_MS)
    assert shown.findings._note.text() == "all 40.0 s · cuda:0"
    window.scene.view.zoom(0.5)
    window.shown.show_slow()
    assert shown.idle.title == "Idle time, shown stretch"
