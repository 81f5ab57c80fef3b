"""The window with an engine that does not exist: states, settings, extremes, themes, layout."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QTextDocument
from PySide6.QtWidgets import QScrollArea
from pytestqt.qtbot import QtBot

from cuzk_engine.client import DaemonError, JobState, PhaseTime, ProcessState, SettingChange
from cuzk_engine.events import EventBatch, Incident, LogLine, Sample, Span
from cuzk_gui.models.process import APPEARANCES, Action
from cuzk_gui.preferences import Preferences
from cuzk_gui.theme import DARK, LIGHT, Theme, ThemeChoice
from cuzk_gui.widgets.controls import Segmented, Switch
from cuzk_gui.window import SMALLEST, MainWindow
from tests.gui import fakes, stories
from tests.gui.conftest import OpenWindow
from tests.gui.fakes import FakeEngine

WAIT_MS = 8000


class TestStates:
    @pytest.mark.parametrize("state", list(ProcessState))
    def test_each_state_has_its_word_and_buttons(
        self, open_window: OpenWindow, qtbot: QtBot, state: ProcessState
    ) -> None:
        engine = FakeEngine(state)
        engine.identity = replace(engine.identity, state=state.value)
        engine.message = f"the sentence about {state.value}"
        window = open_window(engine)
        shown = APPEARANCES[state]
        qtbot.waitUntil(lambda: window.top.pill.word == shown.word, timeout=WAIT_MS)
        for action, button in window.top.buttons.items():
            assert button.isEnabled() == (action in shown.actions), action
        if state in (ProcessState.CRASHED, ProcessState.FOREIGN):
            assert window.banner.label.text() == f"The sentence about {state.value}"
        if state is ProcessState.STOPPED:
            assert window.banner.label.text() == "The engine is not running."
            assert window.banner.button.text() == "Start"
            assert window.banner.isVisible()
        if state is ProcessState.READY:
            assert not window.banner.isVisible()

    def test_what_runs_is_said(self, window: MainWindow) -> None:
        facts = window.top.facts
        assert "build 77c1e4" in facts
        assert "up 2 h 14 min" in facts
        assert "pid 41873" in facts
        assert "started by the window" in facts

    def test_start_from_the_banner(self, open_window: OpenWindow, qtbot: QtBot) -> None:
        engine = FakeEngine(ProcessState.STOPPED)
        window = open_window(engine)
        qtbot.waitUntil(window.banner.isVisible, timeout=WAIT_MS)
        window.banner.button.click()
        assert window.top.pill.word == "Starting…"
        qtbot.waitUntil(lambda: window.session.identity is not None, timeout=WAIT_MS)
        assert engine.calls == ["start"]
        assert window.top.pill.word == "Ready"
        assert not window.banner.isVisible()

    def test_stop_and_start_again(self, window: MainWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        window.top.buttons[Action.STOP].click()
        qtbot.waitUntil(lambda: window.top.pill.word == "Stopped", timeout=WAIT_MS)
        assert window.session.identity is None
        window.top.buttons[Action.START].click()
        qtbot.waitUntil(lambda: window.session.identity is not None, timeout=WAIT_MS)
        assert engine.calls == ["stop", "start"]

    def test_a_device_of_a_stopped_engine_has_no_state(
        self, window: MainWindow, engine: FakeEngine, qtbot: QtBot
    ) -> None:
        ending = fakes.device(state="restarting")
        engine.push(fakes.update(time.monotonic_ns(), identity=replace(engine.identity, devices=(ending,))))
        qtbot.waitUntil(lambda: window.devices.cards["cpu"]._state.text() == "restarting", timeout=WAIT_MS)
        window.top.buttons[Action.STOP].click()
        qtbot.waitUntil(lambda: window.top.pill.word == "Stopped", timeout=WAIT_MS)
        qtbot.waitUntil(lambda: window.devices.cards["cpu"]._state.isHidden(), timeout=WAIT_MS)
        qtbot.waitUntil(lambda: window.live.idle.isHidden(), timeout=WAIT_MS)

    def test_another_build_is_said_with_a_restart(
        self, open_window: OpenWindow, engine: FakeEngine, qtbot: QtBot
    ) -> None:
        engine.stale = True
        window = open_window(engine)
        qtbot.waitUntil(window.banner.isVisible, timeout=WAIT_MS)
        assert "77c1e4" in window.banner.label.text()
        assert "99aa00" in window.banner.label.text()
        window.banner.button.click()
        qtbot.waitUntil(lambda: "restart" in engine.calls, timeout=WAIT_MS)
        qtbot.waitUntil(lambda: not window.banner.isVisible(), timeout=WAIT_MS)

    def test_a_crash_shows_the_end_of_the_log(
        self, window: MainWindow, engine: FakeEngine, qtbot: QtBot, tmp_path: Path
    ) -> None:
        log = tmp_path / "daemon.log"
        log.write_text("2026-11-30 09:41:08 ERROR last words\n")
        engine.log_path = str(log)
        engine.set_state(ProcessState.CRASHED)
        qtbot.waitUntil(lambda: "last words" in window.log.text.toPlainText(), timeout=WAIT_MS)
        assert window.top.pill.word == "Crashed"
        assert not window.notice.isVisible()  # the banner says it

    def test_listening_to_the_network_is_said(self, open_window: OpenWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        engine.identity = replace(engine.identity, address="0.0.0.0:9820")
        window = open_window(engine)
        qtbot.waitUntil(window.banner.isVisible, timeout=WAIT_MS)
        assert "other machines" in window.banner.label.text()

    def test_a_failed_start_is_one_line(self, open_window: OpenWindow, qtbot: QtBot, monkeypatch) -> None:
        engine = FakeEngine(ProcessState.STOPPED)

        def fail() -> None:
            raise DaemonError("port 9820 is in use by nginx (pid 7)")

        monkeypatch.setattr(engine, "start", fail)
        window = open_window(engine)
        qtbot.waitUntil(window.banner.isVisible, timeout=WAIT_MS)
        window.banner.button.click()
        qtbot.waitUntil(window.notice.isVisible, timeout=WAIT_MS)
        assert window.notice.label.text() == "Port 9820 is in use by nginx (pid 7)"


class TestSettings:
    def test_each_control_applies_its_setting(self, window: MainWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        rows = window.devices.rows
        prestage = rows["pipeline.prestage"].control
        assert isinstance(prestage, Segmented)
        prestage.button("locked").click()
        double = rows["pipeline.double_buffer"].control
        assert isinstance(double, Switch)
        double.click()
        window.devices.cards["cpu"].workers.stepped.emit(3)
        wanted = [
            SettingChange("pipeline.prestage", "locked"),
            SettingChange("pipeline.double_buffer", "false"),
            SettingChange("gpus.gpu_workers_per_device", "3", "cpu"),
        ]
        qtbot.waitUntil(lambda: len(engine.changes) == 3, timeout=WAIT_MS)
        assert sorted(engine.changes, key=str) == sorted(wanted, key=str)
        qtbot.waitUntil(lambda: prestage.isEnabled() and prestage.value == "locked", timeout=WAIT_MS)
        qtbot.waitUntil(lambda: len(window.session.marks) == 3, timeout=WAIT_MS)
        qtbot.waitUntil(lambda: window.devices.cards["cpu"].workers.value == 3, timeout=WAIT_MS)

    def test_a_refused_change_goes_back_and_is_said(self, window: MainWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        engine.refuse_settings = "pipeline.prestage: not now"
        control = window.devices.rows["pipeline.prestage"].control
        assert isinstance(control, Segmented)
        control.button("off").click()
        qtbot.waitUntil(window.notice.isVisible, timeout=WAIT_MS)
        assert "not now" in window.notice.label.text()
        qtbot.waitUntil(lambda: control.value == "ahead", timeout=WAIT_MS)

    def test_inert_settings_say_so(self, window: MainWindow) -> None:
        row = window.devices.rows["srs.residency"]
        assert row.note == "makes no difference on the CPU device"
        assert "mapped from its file" in row._note.toolTip()
        assert not window.devices.rows["pipeline.prestage"].note

    def test_fixed_settings_have_no_form(self, window: MainWindow) -> None:
        assert "daemon.listen" not in window.devices.rows


class TestDeviceCard:
    def test_a_gpu_says_what_it_is_and_what_was_read(self, open_window: OpenWindow, qtbot: QtBot) -> None:
        engine = FakeEngine(ProcessState.READY)
        engine.identity = fakes.identity(devices=(stories.gpu(),))
        window = open_window(engine)
        qtbot.waitUntil(lambda: stories.GPU in window.devices.cards, timeout=WAIT_MS)
        card = window.devices.cards[stories.GPU]
        assert card._title.whole() == "cuda:0  NVIDIA H200"
        assert card._line.whole() == "0000:1b:00.0 · sm_90"
        assert "GPU-3f1a77c0-5b0e-4f6a-9c58-1d2e3f4a5b6c" in card._title.toolTip()
        assert card._readings.isHidden()  # nothing was read yet
        now = time.monotonic_ns()
        events = EventBatch.empty()
        events.samples.append(Sample(now, stories.GPU, utilisation=0.94, power=512.4, temperature=61.0))
        engine.push(fakes.update(now, events))
        qtbot.waitUntil(lambda: card._readings.whole() == "94 % busy · 512 W · 61 °C", timeout=WAIT_MS)

    def test_of_many_devices_the_shown_one_is_whole(self, open_window: OpenWindow, qtbot: QtBot) -> None:
        engine = FakeEngine(ProcessState.READY)
        engine.identity = fakes.identity(devices=tuple(stories.gpu(f"cuda:{n}") for n in range(4)))
        window = open_window(engine)
        qtbot.waitUntil(lambda: len(window.devices.cards) == 4, timeout=WAIT_MS)
        qtbot.waitUntil(lambda: not window.devices.cards["cuda:0"]._line.isHidden(), timeout=WAIT_MS)
        assert window.devices.cards["cuda:1"]._line.isHidden()
        window.select_device("cuda:1")
        qtbot.waitUntil(lambda: not window.devices.cards["cuda:1"]._line.isHidden(), timeout=WAIT_MS)
        assert window.devices.cards["cuda:0"]._line.isHidden()


class TestExtremes:
    def test_many_devices_jobs_and_long_names(self, open_window: OpenWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        devices = [
            fakes.device(
                f"cuda:{n}",
                name=f"GPU «{n}»: ‮ 日本語 " * 20,
                capacity=0 if n % 2 else 2**64 - 1,
                isa="x" * 300,
                reason="y" * 900,
                state="contemplating",
            )
            for n in range(16)
        ]
        engine.identity = fakes.identity(devices=tuple(devices), build="", version="z" * 999)
        engine.memory = {(f"cuda:{n}", "srs"): 2**64 - 1 for n in range(16)}
        engine.jobs = {
            str(n): fakes.job(
                f"{n:05d}" + "i" * 4000,
                circuit_name="c" * 4000,
                state=JobState.QUEUED,
                queue_position=n,
                progress=1e308,
            )
            for n in range(10_000)
        }
        window = open_window(engine)
        qtbot.waitUntil(lambda: len(window.session.jobs) == 10_000, timeout=3 * WAIT_MS)
        qtbot.waitUntil(lambda: window.live.jobs_note.text() == "10,000 queued", timeout=WAIT_MS)
        qtbot.waitUntil(lambda: len(window.devices.cards) == 16, timeout=WAIT_MS)  # they come one by one
        events = EventBatch.empty()
        now = time.monotonic_ns()
        events.spans.append(
            Span(now - 10**9, now, "cuda:0", "h2d", "upload.abc", "j" * 4096, bytes=2**64 - 1, pinned=True)
        )
        events.spans.append(Span(now, now, "cuda:0", "d2h", "download.result", bytes=2**63, pinned=False))
        events.spans.append(Span(0, 2**62, "cuda:0", "compute", "?"))
        events.incidents.append(Incident(now, "cuda:0", "k" * 500, "", "m" * 5000, 2**64, 0))
        events.logs.append(LogLine(now, -1, "?", "l" * 100_000))
        engine.push(fakes.update(now, events))
        qtbot.waitUntil(lambda: len(window.session.incidents) == 1, timeout=WAIT_MS)
        window.select_device("cuda:0")
        assert not window.grab().isNull()
        assert window.minimumSizeHint().width() <= 1100

    def test_unknown_states_are_shown_as_they_are(self, window: MainWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        engine.set_job(fakes.job("strange", state="meditating", phase="hum"))
        qtbot.waitUntil(lambda: window.detail.state_text == "meditating", timeout=WAIT_MS)
        assert not window.grab().isNull()


class TestTheme:
    def test_choice_is_remembered_and_painted(self, window: MainWindow, theme: Theme, preferences: Preferences) -> None:
        window._choose_theme(ThemeChoice.LIGHT)
        assert theme.colours is LIGHT
        assert preferences.theme is ThemeChoice.LIGHT
        image = window.charts.memory.plot.grab().toImage()
        assert image.pixelColor(3, 3).name() == LIGHT.panel
        window._choose_theme(ThemeChoice.DARK)
        image = window.charts.memory.plot.grab().toImage()
        assert image.pixelColor(3, 3).name() == DARK.panel

    @pytest.mark.parametrize("colours", [DARK, LIGHT], ids=["dark", "light"])
    @pytest.mark.parametrize("name", ["text", "muted", "faint", "good", "warn", "bad", "accent"])
    def test_text_reads_on_panels(self, colours, name: str) -> None:
        assert _contrast(getattr(colours, name), colours.panel) >= 4.5

    def test_purposes_have_their_colours(self) -> None:
        wanted = {"srs": "#4c78a8", "matrices": "#72b7b2", "witness": "#54a24b", "abc": "#eeca3b", "ntt": "#f58518"}
        assert wanted.items() <= DARK.purposes.items()
        assert {"msm": "#b279a2", "scratch": "#8c6d5a", "context": "#5f6b7a"}.items() <= DARK.purposes.items()
        assert LIGHT.purposes.keys() == DARK.purposes.keys()


def _contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_times_of_phases_are_whole_in_the_narrowest_column(open_window: OpenWindow, qtbot: QtBot) -> None:
    engine = FakeEngine(ProcessState.READY)
    window = open_window(engine)
    qtbot.waitUntil(lambda: window.controller.engine.appearance.prove, timeout=WAIT_MS)
    window.resize(SMALLEST)
    window.proofs.prove_demo()
    qtbot.waitUntil(lambda: window.detail.job_id == "job-1", timeout=WAIT_MS)
    engine.complete("job-1")
    qtbot.waitUntil(lambda: len(window.detail._phase_rows) > 2, timeout=WAIT_MS)
    window.live.columns.setSizes([10, 5000, 10])
    qtbot.waitUntil(lambda: window.live.side.width() == window.live.side.minimumWidth(), timeout=WAIT_MS)
    labels = [took for _, _, took in window.detail._phase_rows.values()]
    panel = window.detail._job

    def whole() -> bool:
        right = panel.mapToGlobal(panel.rect().bottomRight()).x()
        wide = all(took.width() >= took.sizeHint().width() > 10 for took in labels)
        return wide and all(took.mapToGlobal(took.rect().bottomRight()).x() <= right for took in labels)

    qtbot.waitUntil(whole, timeout=WAIT_MS)


def test_names_of_settings_and_phases_are_whole_in_the_narrowest_columns_beside_scroll_bars(
    open_window: OpenWindow, qtbot: QtBot
) -> None:
    engine = FakeEngine(ProcessState.READY)
    window = open_window(engine)
    live = window.live
    qtbot.waitUntil(lambda: window.controller.engine.appearance.prove, timeout=WAIT_MS)
    window.resize(SMALLEST)
    phases = [PhaseTime(name, 9_690_000) for name in ("load_key", "memory", "lock", "msm", "ntt")]
    engine.set_job(fakes.job("long", state=JobState.FAILED, error="the key does not fit. " * 40, phases=tuple(phases)))
    qtbot.waitUntil(lambda: window.detail.job_id == "long", timeout=WAIT_MS)
    live.columns.setSizes([10, 5000, 10])
    bars = [
        found.verticalScrollBar() for part in (live._panel, window.detail) for found in part.findChildren(QScrollArea)
    ]
    qtbot.waitUntil(lambda: all(bar.isVisible() for bar in bars), timeout=WAIT_MS)
    assert live.side.width() == live.side.minimumWidth()
    names = [name for name, _, _ in window.detail._phase_rows.values()]
    assert "wait for memory" in [name.whole() for name in names]
    qtbot.waitUntil(lambda: [name.text() for name in names] == [name.whole() for name in names], timeout=WAIT_MS)
    for row in window.devices.rows.values():
        title = row._title
        assert title.width() >= title.fontMetrics().horizontalAdvance(title.text()), row.key


@pytest.mark.parametrize("circuit", ["merkle10", "membership_in_a_tree_of_depth_30", "W" * 200])
def test_facts_of_a_job_are_whole_in_the_narrowest_column(open_window: OpenWindow, qtbot: QtBot, circuit: str) -> None:
    engine = FakeEngine(ProcessState.READY)
    window = open_window(engine)
    qtbot.waitUntil(lambda: window.controller.engine.appearance.prove, timeout=WAIT_MS)
    quiet = time.time_ns() - 8_040_000_000_000
    changes = {"circuit_name": circuit, "partitions": 10, "attempts": 13, "last_activity_unix_ns": quiet}
    engine.set_job(fakes.job("long", **changes))
    qtbot.waitUntil(lambda: window.detail.job_id == "long", timeout=WAIT_MS)
    window.live.columns.setSizes([10, 5000, 10])
    qtbot.waitUntil(lambda: window.live.side.width() == window.live.side.minimumWidth(), timeout=WAIT_MS)
    facts = window.detail._facts

    def whole() -> bool:
        document = QTextDocument()
        document.setDocumentMargin(0)
        document.setDefaultFont(facts.font())
        document.setHtml(facts.text())
        document.setTextWidth(facts.width() if facts.wordWrap() else -1)
        needed = document.size()
        return needed.width() <= facts.width() and needed.height() <= facts.height()

    qtbot.waitUntil(whole, timeout=WAIT_MS)
    assert "partitions, each at most 12 times" in facts.text()
    assert f"circuit {circuit[:70]}" in facts.toolTip()


def test_nothing_is_cut_off_in_the_smallest_window(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window(FakeEngine(ProcessState.READY))
    qtbot.waitUntil(lambda: bool(window.devices.rows) and window.devices.whole, timeout=WAIT_MS)
    window.resize(SMALLEST)
    live = window.live
    qtbot.waitUntil(lambda: window.size() == SMALLEST, timeout=WAIT_MS)
    for splitter in (live.columns, live.left):
        assert splitter.width() <= window.width()
    shown = live.devices.parentWidget()
    assert shown is not None
    assert shown.minimumSizeHint().width() <= live.left.widget(0).width()
    assert live.columns.widget(2).geometry().right() < live.width()


def test_tab_goes_from_left_to_right_and_from_top_to_bottom(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window(FakeEngine(ProcessState.READY))
    live = window.live
    qtbot.waitUntil(
        lambda: bool(live.devices.rows) and live._seen_widgets[:1] == (live.devices.version,), timeout=WAIT_MS
    )
    chain, widget = [], window.nextInFocusChain()
    while widget is not window:
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus and widget.isVisible():
            chain.append(widget)
        widget = widget.nextInFocusChain()
    row = live.devices.rows["pipeline.prestage"].control
    wanted = [
        window.top.prove,
        live.devices.cards["cpu"].workers,
        row,
        live.jobs,
        live.charts.memory.scale,
        live.detail,
    ]
    places = [next(i for i, w in enumerate(chain) if w is part or part.isAncestorOf(w)) for part in wanted]
    assert places == sorted(places)
