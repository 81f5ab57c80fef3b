"""Proofs from the window, from the choice of files to what is saved."""

import json
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QMimeData, QPointF, QSize, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QDialog, QPushButton
from pytestqt.qtbot import QtBot

from cuzk_engine.client import JobState, ProcessState
from cuzk_gui.widgets.prove_dialog import ProveDialog
from cuzk_gui.window import SMALLEST, MainWindow, first_size
from tests.gui import fakes
from tests.gui.conftest import OpenWindow, dialog_of
from tests.gui.fakes import FakeEngine

WAIT_MS = 8000


class TestProofs:
    def test_demo_from_submit_to_files(
        self, window: MainWindow, engine: FakeEngine, qtbot: QtBot, tmp_path: Path
    ) -> None:
        window.proofs.prove_demo()
        qtbot.waitUntil(lambda: window.detail.job_id == "job-1", timeout=WAIT_MS)
        assert window.detail.state_text == "queued, next"
        engine.set_job(replace(engine.jobs["job-1"], state=JobState.RUNNING, phase="msm", progress=0.4))
        qtbot.waitUntil(lambda: "MSM" in window.detail.state_text, timeout=WAIT_MS)
        engine.complete("job-1")
        qtbot.waitUntil(lambda: "verified in 16 ms" in window.detail.state_text, timeout=WAIT_MS)
        assert "verified in 16 ms" in window.notice.label.text()
        window.proofs.save_into("job-1", str(tmp_path))
        qtbot.waitUntil(lambda: (tmp_path / "public.json").exists(), timeout=WAIT_MS)
        qtbot.waitUntil(lambda: "Saved" in window.notice.label.text(), timeout=WAIT_MS)
        assert json.loads((tmp_path / "proof.json").read_text()) == {"protocol": "groth16"}
        assert sorted(p.name for p in tmp_path.iterdir()) == ["proof.json", "public.json"]

    def test_a_failed_job_shows_its_error_in_full(self, window: MainWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        error = "proof did not verify: the witness does not satisfy the circuit, " * 4
        window.proofs.prove_demo()
        qtbot.waitUntil(lambda: "job-1" in engine.jobs, timeout=WAIT_MS)
        engine.set_job(replace(engine.jobs["job-1"], state=JobState.FAILED, error=error))
        qtbot.waitUntil(lambda: window.detail.error_text == error.strip(), timeout=WAIT_MS)
        index = window.jobs.jobs.index(0)
        assert error.strip() in index.data(Qt.ItemDataRole.ToolTipRole)

    def test_a_refused_submit_is_one_line(self, window: MainWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        engine.submit_error = "witness.wtns: incomplete file: needs 100 bytes, the file has 3"
        window.proofs.prove_demo()
        qtbot.waitUntil(window.notice.isVisible, timeout=WAIT_MS)
        assert "incomplete file" in window.notice.label.text()

    def test_submit_while_stopped_starts_the_engine(self, open_window: OpenWindow, qtbot: QtBot) -> None:
        engine = FakeEngine(ProcessState.STOPPED)
        window = open_window(engine)
        qtbot.waitUntil(lambda: window.top.pill.word == "Stopped", timeout=WAIT_MS)
        window.proofs.ask()
        dialog = dialog_of(ProveDialog)
        assert isinstance(dialog, ProveDialog)
        assert dialog.submit.text() == "Start the engine and prove"
        dialog.submit.click()
        qtbot.waitUntil(lambda: "job-1" in engine.jobs, timeout=WAIT_MS)
        assert engine.calls == ["start", "submit"]

    def test_cancel(self, window: MainWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        window.proofs.prove_demo()
        qtbot.waitUntil(lambda: window.detail.job_id == "job-1", timeout=WAIT_MS)
        window.detail.cancel_asked.emit("job-1")
        qtbot.waitUntil(lambda: window.detail.state_text == "cancelled", timeout=WAIT_MS)

    def test_a_job_is_shown_in_the_charts(self, window: MainWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        window.proofs.prove_demo()
        qtbot.waitUntil(lambda: window.detail.job_id == "job-1", timeout=WAIT_MS)
        engine.complete("job-1")
        qtbot.waitUntil(lambda: window.session.jobs.get("job-1").started_unix_ns > 0, timeout=WAIT_MS)
        window.detail.charts_asked.emit("job-1")
        view, job = window.scene.view, window.session.jobs.get("job-1")
        assert not view.following
        assert view.start < window.session.seconds(job.started_unix_ns - window.session.wall_offset_ns) < view.end

    def test_the_first_window_fits_the_screen(self) -> None:
        assert first_size(QSize(1280, 800)) == QSize(1264, 756)
        assert first_size(QSize(3840, 2160)) == QSize(1500, 900)
        assert first_size(QSize(640, 480)) == SMALLEST

    def test_it_opens_no_larger_than_its_screen_has_room(self, window: MainWindow) -> None:
        assert window.size() == first_size(window.screen().availableSize())

    def test_what_a_running_engine_did_lately_is_asked_for(self, window: MainWindow, engine: FakeEngine) -> None:
        assert engine.histories == [3600 * 10**9]

    def test_a_job_before_all_that_the_charts_know_cannot_be_shown_there(
        self, window: MainWindow, engine: FakeEngine, qtbot: QtBot
    ) -> None:
        link = window.detail._charts
        begin = window.session.wall_ns(0.0)
        ended = {"state": JobState.COMPLETED, "progress": 1.0, "started_unix_ns": begin - 9 * 10**9}
        engine.set_job(fakes.job("old", finished_unix_ns=begin - 5 * 10**9, **ended))
        qtbot.waitUntil(lambda: window.detail.job_id == "old", timeout=WAIT_MS)
        qtbot.waitUntil(link.isHidden, timeout=WAIT_MS)
        engine.set_job(fakes.job("old", finished_unix_ns=begin + 5 * 10**9, **ended))
        qtbot.waitUntil(lambda: not link.isHidden(), timeout=WAIT_MS)

    def test_a_circuit_that_somebody_else_registered_appears(
        self, window: MainWindow, engine: FakeEngine, qtbot: QtBot
    ) -> None:
        assert window.controller.circuits == []
        circuit = engine.register("/elsewhere/other.zkey", "other")
        engine.jobs["job-9"] = fakes.job("job-9", circuit_id=circuit.id, state=JobState.RUNNING)
        engine.set_job(engine.jobs["job-9"])
        qtbot.waitUntil(lambda: [c.name for c in window.controller.circuits] == ["other"], timeout=WAIT_MS)

    def test_dialog_has_the_demo_and_checks_files(self, window: MainWindow, tmp_path: Path) -> None:
        window.proofs.ask()
        dialog = dialog_of(ProveDialog)
        assert isinstance(dialog, ProveDialog)
        assert dialog.key.endswith("demo/circuit.zkey")
        assert dialog.witness.endswith("demo/witness.wtns")
        dialog.key_edit.setText(str(tmp_path / "missing.zkey"))
        dialog.submit.click()
        assert "is not there" in dialog.problem
        dialog.witness_edit.setText("")
        assert not dialog.submit.isEnabled()
        dialog.reject()

    def test_dropped_files_fill_the_dialog(self, window: MainWindow, tmp_path: Path) -> None:
        data = QMimeData()
        data.setUrls([QUrl.fromLocalFile(str(tmp_path / name)) for name in ("a.zkey", "b.wtns", "c.txt")])
        enter = QDragEnterEvent(
            QPointF(5, 5).toPoint(),
            Qt.DropAction.CopyAction,
            data,
            Qt.MouseButton.LeftButton,
            Qt.KeyboardModifier.NoModifier,
        )
        window.dragEnterEvent(enter)
        assert enter.isAccepted()
        window.dropEvent(
            QDropEvent(
                QPointF(5, 5), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
            )
        )
        dialog = dialog_of(ProveDialog)
        assert isinstance(dialog, ProveDialog)
        assert dialog.key == str(tmp_path / "a.zkey")
        assert dialog.witness == str(tmp_path / "b.wtns")
        dialog.reject()

    def test_an_existing_proof_is_not_replaced_unasked(
        self, window: MainWindow, engine: FakeEngine, qtbot: QtBot, tmp_path: Path
    ) -> None:
        (tmp_path / "proof.json").write_text("mine")
        engine.jobs["job-1"] = fakes.job("job-1", state=JobState.COMPLETED)
        window.proofs.save_into("job-1", str(tmp_path))
        box = next(
            w for w in QApplication.topLevelWidgets() if isinstance(w, QDialog) and w.windowTitle() == "Save proof"
        )
        next(b for b in box.findChildren(QPushButton) if b.text() == "Cancel").click()
        qtbot.wait(100)
        assert (tmp_path / "proof.json").read_text() == "mine"

    def test_a_folder_that_takes_no_file(
        self, window: MainWindow, engine: FakeEngine, qtbot: QtBot, tmp_path: Path
    ) -> None:
        engine.jobs["job-1"] = fakes.job("job-1", state=JobState.COMPLETED)
        window.proofs.save_into("job-1", str(tmp_path / "gone"))
        qtbot.waitUntil(lambda: "not saved" in window.notice.label.text(), timeout=WAIT_MS)
