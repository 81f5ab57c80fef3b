"""Findings and incidents: what is said, what can be done about it, and what was when it happened."""

import re
import time
from dataclasses import replace

import pytest
from PySide6.QtCore import QPointF
from PySide6.QtGui import QFontMetricsF
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from cuzk_engine.client import ProcessState, SettingChange
from cuzk_engine.events import EventBatch, Finding, Holding, Incident, Remedy
from cuzk_gui.models import incidents as incident_words
from cuzk_gui.models.findings import FindingList, RemedyState, gain_text, remedy_state
from cuzk_gui.models.frozen import frozen_session
from cuzk_gui.models.session import Session
from cuzk_gui.theme import Theme, ui_font
from cuzk_gui.widgets.controls import label
from cuzk_gui.widgets.findings_panel import Card, FindingsPanel, SideColumn
from cuzk_gui.widgets.incident_dialog import HeldBar, IncidentDialog
from cuzk_gui.window import MainWindow
from tests.gui import fakes, stories
from tests.gui.conftest import OpenWindow
from tests.gui.fakes import GIB, FakeEngine
from tests.gui.stories import GPU
from tests.gui.test_models import feed

WAIT_MS = 8000
SECOND = 1_000_000_000


def gpu_engine(prestage: str = "off") -> FakeEngine:
    engine = FakeEngine(ProcessState.READY)
    engine.identity = fakes.identity(devices=(stories.gpu(),), started_unix_ns=time.time_ns() - 41 * SECOND)
    engine.memory = stories.ledger()
    engine.settings = [replace(s, value=prestage) if s.key == "pipeline.prestage" else s for s in engine.settings]
    return engine


@pytest.fixture
def engine() -> FakeEngine:
    return gpu_engine()


@pytest.fixture
def window(window: MainWindow, engine: FakeEngine, qtbot: QtBot) -> MainWindow:
    """With the story of a minute: a finding, and an incident with its picture."""
    now = time.monotonic_ns()
    events, jobs = stories.minute(now)
    engine.push(fakes.update(now, events, jobs=jobs))
    engine.push(fakes.update(now + 1))
    qtbot.waitUntil(lambda: len(window.session.incidents) == 1, timeout=WAIT_MS)
    qtbot.waitUntil(lambda: ("incident", "1") in window.live.findings.cards, timeout=WAIT_MS)
    return window


def upload_card(window: MainWindow) -> Card:
    return window.live.findings.cards[GPU, "pageable-upload"]


class TestList:
    def test_the_newest_of_each_kind_most_gain_first(self) -> None:
        found = FindingList()
        found.extend([stories.finding(10), stories.handover_finding(20), stories.finding(30, 0.05)])
        assert [f.time_ns for f in found.of(GPU)] == [30, 20]
        found.extend([stories.finding(5)])  # told late
        assert [f.time_ns for f in found.of(GPU)] == [30, 20]
        assert found.of("cuda:7") == []

    def test_what_is_not_told_any_more_is_over(self) -> None:
        found = FindingList()
        found.extend([stories.finding(10), stories.handover_finding(200)])
        assert [f.time_ns for f in found.of(GPU, since_ns=100)] == [200]
        assert len(found.of(GPU, 100, {(GPU, "pageable-upload")})) == 2

    def test_it_is_bounded(self) -> None:
        found = FindingList()
        found.extend(Finding(n, GPU, f"kind {n}", "", (), 0, n) for n in range(5000))
        assert len(found) == 200

    @pytest.mark.parametrize(
        ("gain", "text"),
        [
            (0.62, "saves about 62 % of the idle time"),
            (0.004, "saves less than 1 % of idle time"),
            (None, ""),
            (0.0, ""),
            (7.0, ""),
        ],
    )
    def test_gain_in_words(self, gain: float | None, text: str) -> None:
        assert gain_text(gain) == text


class TestRemedyState:
    def _session(self, **changes: object) -> Session:
        session = Session()
        identity = fakes.identity(devices=(fakes.device(), stories.gpu()))
        feed(session, fakes.update(1, identity=identity, settings=fakes.settings()))
        for name, value in changes.items():
            setattr(session, name, value)
        return session

    def test_can_be_applied(self) -> None:
        remedy = Remedy("pipeline.prestage", "locked", "")
        assert remedy_state(remedy, self._session(), GPU) == RemedyState("Apply", True)

    def test_already_so(self) -> None:
        state = remedy_state(Remedy("pipeline.prestage", "ahead", ""), self._session(), GPU)
        assert (state.text, state.enabled, state.done) == ("In effect", False, True)

    @pytest.mark.parametrize(
        ("remedy", "device", "reason"),
        [
            (Remedy("pipeline.evaluate", "device", ""), "cpu", "makes no difference on the CPU device"),
            (Remedy("daemon.listen", "1", ""), GPU, "next start"),
            (Remedy("warp.speed", "9", ""), GPU, "no setting warp.speed"),
        ],
    )
    def test_cannot_be_applied_with_a_reason(self, remedy: Remedy, device: str, reason: str) -> None:
        state = remedy_state(remedy, self._session(), device)
        assert not state.enabled
        assert reason in state.reason

    def test_not_in_a_recording_and_not_without_the_engine(self) -> None:
        remedy = Remedy("pipeline.prestage", "locked", "")
        assert "recording" in remedy_state(remedy, self._session(recorded=True), GPU).reason
        assert "not running" in remedy_state(remedy, self._session(identity=None), GPU).reason

    def test_on_its_way(self) -> None:
        session = self._session()
        session.settings.ask(SettingChange("pipeline.prestage", "locked"))
        state = remedy_state(Remedy("pipeline.prestage", "locked", ""), session, GPU)
        assert (state.text, state.enabled) == ("Applying…", False)


class TestPanel:
    def test_a_finding_is_applied_by_its_button_and_marked_on_the_axis(
        self, window: MainWindow, engine: FakeEngine, qtbot: QtBot
    ) -> None:
        card = upload_card(window)
        assert card.title.text().startswith("Uploads from pageable memory inside the lock")
        told = r"6\.38 s in 29 gaps, 81\.2 % of the idle time\. In the 1 min before \d\d:\d\d:\d\d\."
        assert re.fullmatch(told, card.body.text())
        assert card.remedy.text() == "Uploads from page-locked memory before the lock is taken."
        assert card.gain.text() == "saves about 62 % of the idle time"
        assert card.button.isEnabled()
        marks = len(window.session.marks)
        card.button.click()
        qtbot.waitUntil(lambda: engine.changes == [SettingChange("pipeline.prestage", "ahead")], timeout=WAIT_MS)
        qtbot.waitUntil(lambda: upload_card(window).button.text() == "In effect", timeout=WAIT_MS)
        qtbot.waitUntil(lambda: len(window.session.marks) == marks + 1, timeout=WAIT_MS)
        assert window.session.marks[-1].text == "pre-staging → ahead"

    def test_after_a_while_it_says_what_it_brought(self, window: MainWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        upload_card(window).button.click()
        qtbot.waitUntil(lambda: upload_card(window).button.text() == "In effect", timeout=WAIT_MS)
        now = time.monotonic_ns()
        engine.push(fakes.update(now + 5 * SECOND))
        qtbot.waitUntil(lambda: upload_card(window).gain.text().endswith("0.0 % since"), timeout=WAIT_MS)
        before = float(upload_card(window).gain.text().partition(" %")[0])
        assert before > 5

    def test_a_finding_without_a_remedy_has_no_button(self, window: MainWindow) -> None:
        card = window.live.findings.cards[GPU, "other-process"]
        assert card.button.isHidden()
        assert card.property("card") == "quiet"

    def test_choosing_a_finding_singles_its_gaps_out(self, window: MainWindow) -> None:
        upload_card(window).pressed.emit()
        assert window.scene.cause == "pageable-upload"
        upload_card(window).pressed.emit()
        assert window.scene.cause == ""

    def test_without_the_engine_the_button_says_why_not(
        self, window: MainWindow, engine: FakeEngine, qtbot: QtBot
    ) -> None:
        engine.set_state(ProcessState.STOPPED)
        qtbot.waitUntil(lambda: not upload_card(window).button.isEnabled(), timeout=WAIT_MS)
        assert upload_card(window).reason.text() == "the engine is not running"

    def test_nothing_found_is_said(self, open_window: OpenWindow, qtbot: QtBot) -> None:
        window = open_window(FakeEngine(ProcessState.READY))
        qtbot.waitUntil(lambda: bool(window.devices.rows) and window.devices.whole, timeout=WAIT_MS)
        qtbot.waitUntil(lambda: "Nothing to improve" in window.live.findings._empty.text(), timeout=WAIT_MS)

    @pytest.mark.parametrize("width", [200, 230, 310])
    def test_that_nothing_was_found_is_seen_whole(self, theme: Theme, qtbot: QtBot, width: int) -> None:
        session = Session()
        session.recorded = True
        panel = FindingsPanel(theme)
        column = SideColumn(panel, label("", "faint"))
        qtbot.addWidget(column)
        column.resize(width, 700)
        column.show()
        for reading in (True, False):
            session.reading = reading
            panel.show_session(session, GPU)
            column.fit()
            said = panel._empty
            qtbot.waitUntil(lambda said=said: said.height() >= said.heightForWidth(said.width()), timeout=WAIT_MS)
            assert said.geometry().bottom() < panel.height() < 100


class TestIncidentWords:
    def test_headline(self) -> None:
        text = incident_words.headline(stories.incident(10**12))
        assert text == "Worker 1 asked for 6.00 GiB for the vectors a, b, c, and 5.43 GiB of 139.8 GiB were free"
        plain = Incident(1, GPU, "device-lost", "", "xid 79: the card fell off the bus")
        whole = replace(
            stories.incident(10**12), requested=14 << 20, picture=replace(stories.picture(1), purpose="partition")
        )
        assert incident_words.headline(whole).startswith("Worker 1 asked for 14.0 MiB for a whole partition, and ")
        assert incident_words.headline(plain) == "xid 79: the card fell off the bus"
        assert incident_words.title(plain) == "Device lost"
        assert incident_words.title(replace(plain, kind="gremlins-seen")) == "Gremlins seen"

    def test_largest_holder_adds_up_what_belongs_together(self) -> None:
        picture = replace(
            stories.picture(10**12),
            others=(),
            holdings=(
                Holding("msm", 0, "a", 3 * GIB),
                Holding("msm", 1, "b", 3 * GIB),
                Holding("srs", -1, "", 5 * GIB),
            ),
        )
        assert incident_words.largest_holder(picture) == (
            "Most was held by the engine, for multi-scalar multiplication (MSM): 6.00 GiB"
        )


class TestIncidentMemory:
    def test_it_is_frozen_before_newer_rows_push_it_out(self) -> None:
        session = Session()
        now = 100 * SECOND
        identity = fakes.identity(devices=(stories.gpu(),), started_unix_ns=time.time_ns() - 40 * SECOND)
        feed(session, fakes.update(now - 40 * SECOND, identity=identity, memory=stories.ledger()))
        events, _ = stories.minute(now)
        feed(session, fakes.update(now, events))
        record = session.incidents.records[0]
        assert record.frozen is not None
        before = frozen_session(session, record)
        assert before is not None
        moment = before.devices[GPU].memory.at(record.incident.time_ns)
        for step in range(40):
            churn = EventBatch.empty()
            churn.allocations += [
                stories.Allocation(now + step * SECOND + i, GPU, (1, -1)[i % 2], "scratch") for i in range(1000)
            ]
            feed(session, fakes.update(now + (step + 1) * SECOND, churn))
        assert session.devices[GPU].memory.at(record.incident.time_ns) is None  # gone from the live rows
        after = frozen_session(session, record)
        assert after is not None
        assert after.devices[GPU].memory.at(record.incident.time_ns) == moment
        assert sum(moment.values()) > 50 * GIB

    def test_only_so_many_are_kept_whole(self) -> None:
        session = Session()
        identity = fakes.identity(devices=(stories.gpu(),))
        feed(session, fakes.update(SECOND, identity=identity, memory=stories.ledger()))
        for n in range(60):
            events = EventBatch.empty()
            events.incidents.append(stories.incident((20 + n * 2) * SECOND))
            feed(session, fakes.update((22 + n * 2) * SECOND, events))
        kept = [record.frozen is not None for record in session.incidents.records]
        assert kept == [False] * 20 + [True] * 40


class TestIncidentDialog:
    def _texts(self, dialog: IncidentDialog) -> str:
        return "\n".join(label.text() for label in dialog.findChildren(QLabel))

    def test_who_held_what(self, window: MainWindow) -> None:
        dialog = window.live.show_incident(1)
        assert dialog is not None
        table = dialog.table
        rows = [[table.item(r, c).text() for c in range(4)] for r in range(table.rowCount())]
        assert rows[0] == ["another program", "train.py (pid 50211)", "60.7 GiB", "43.4 %"]
        assert rows[1] == ["the proving key", "all workers", "44.0 GiB", "31.5 %"]
        assert rows[-1][0] == "free"
        assert sum(row[0] == "the witness" for row in rows) == 2  # one for each worker
        assert ["another program", "a program that is not visible here (pid 731)"] in [row[:2] for row in rows]
        text = self._texts(dialog)
        assert "What would have fitted" in text
        assert "would need 75.0 GiB" in text
        assert "Pre-staging" in text
        assert dialog.chart is not None
        assert window.live.show_incident(1) is dialog  # raised, not opened twice

    def test_its_capacity_is_the_one_of_that_moment_everywhere(self, window: MainWindow) -> None:
        session = window.session
        record = session.incidents.records[0]
        assert record.incident.picture is not None
        picture = replace(record.incident.picture, capacity=60 * GIB)  # what the device has now is another one
        dialog = IncidentDialog(
            window.theme, session, replace(record, incident=replace(record.incident, picture=picture))
        )
        assert dialog.chart is not None
        assert dialog.chart.scene.capacity == 60 * GIB
        dialog.deleteLater()

    @pytest.mark.parametrize("requested", [GIB, 500 * GIB])
    def test_captions_under_the_bar_do_not_meet(self, window: MainWindow, requested: int) -> None:
        bar = HeldBar(window.theme, stories.picture(1), requested)
        metrics = QFontMetricsF(ui_font(11))
        for edge in (900.0, 130.0, 3.0):
            (held, first), (capacity, second) = bar.captions(edge, metrics)
            assert (held, capacity) == ("held 134.4 GiB", "capacity 139.8 GiB")
            assert first.right() < second.left()
            assert second.right() == pytest.approx(max(edge, second.right()))
        bar.deleteLater()

    def test_its_button_applies_what_would_have_fitted(
        self, window: MainWindow, engine: FakeEngine, qtbot: QtBot
    ) -> None:
        dialog = window.live.show_incident(1)
        assert dialog is not None
        remedy, button, _ = dialog.remedies[1]
        assert button.isEnabled()
        button.click()
        wanted = SettingChange(remedy.key, remedy.value, GPU)
        qtbot.waitUntil(lambda: engine.changes == [wanted], timeout=WAIT_MS)
        qtbot.waitUntil(lambda: button.text() == "In effect", timeout=WAIT_MS)

    def test_it_follows_the_engine_and_the_theme(self, window: MainWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        from cuzk_gui.theme import ThemeChoice

        dialog = window.live.show_incident(1)
        assert dialog is not None
        engine.set_state(ProcessState.STOPPED)
        qtbot.waitUntil(lambda: not dialog.remedies[0][1].isEnabled(), timeout=WAIT_MS)
        assert dialog.remedies[0][2].text() == "the engine is not running"
        window.theme.choose(ThemeChoice.LIGHT)
        dialog.grab()

    def test_those_that_are_alike_share_a_card(self, window: MainWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        cards = window.live.findings.cards
        events = EventBatch.empty()
        now = time.monotonic_ns()
        events.incidents += [stories.incident(now), Incident(now, GPU, "worker-died", "", "signal 9")]
        engine.push(fakes.update(now, events))
        qtbot.waitUntil(lambda: ("incident", "3") in cards, timeout=WAIT_MS)
        assert ("incident", "2") not in cards
        assert cards["incident", "1"].title.text().startswith("Out of memory, 2 times, ")
        assert cards["incident", "3"].title.text().startswith("Worker died, ")

    def test_other_circuits_and_limits_have_cards_of_their_own(
        self, window: MainWindow, engine: FakeEngine, qtbot: QtBot
    ) -> None:
        now, cards = time.monotonic_ns(), window.live.findings.cards
        jobs = [fakes.job("one", circuit_id="small"), fakes.job("two", circuit_id="large")]
        small, large = stories.incident(now, "one"), stories.incident(now, "two")
        assert small.picture is not None
        limited = replace(small, picture=replace(small.picture, capacity=GIB))
        events = EventBatch.empty()
        events.incidents += [small, large, limited, small]
        engine.push(fakes.update(now, events, jobs=jobs))
        qtbot.waitUntil(lambda: ("incident", "4") in cards, timeout=WAIT_MS)
        assert {
            number: card.title.text() for (kind, number), card in cards.items() if kind == "incident"
        }.keys() == set("1234")
        assert cards["incident", "2"].title.text().startswith("Out of memory, 2 times, ")

    def test_what_an_earlier_engine_told_is_past(self, window: MainWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        now, cards = time.monotonic_ns(), window.live.findings.cards
        assert ("incident", "1") in cards
        later = fakes.identity(devices=(stories.gpu(),), started_unix_ns=time.time_ns())
        engine.push(fakes.update(now, identity=later))
        qtbot.waitUntil(lambda: ("incident", "1") not in cards, timeout=WAIT_MS)
        assert (GPU, "out-of-memory") not in cards
        assert len(window.session.incidents) == 1  # its flag stays
        events = EventBatch.empty()
        events.incidents.append(stories.incident(now))
        engine.push(fakes.update(now, events))
        qtbot.waitUntil(lambda: ("incident", "2") in cards, timeout=WAIT_MS)
        assert not cards["incident", "2"].title.text().startswith("Out of memory, 2 times, ")

    def test_what_an_engine_says_of_its_predecessors_is_past(self, theme: Theme, qtbot: QtBot) -> None:
        now, events, session = time.monotonic_ns(), EventBatch.empty(), Session()
        events.incidents += [stories.incident(now - 60 * SECOND), stories.incident(now - 20 * SECOND)]
        feed(session, fakes.update(now, events, identity=gpu_engine().identity))
        panel = FindingsPanel(theme)
        qtbot.addWidget(panel)
        panel.show_session(session, GPU)
        assert list(panel.cards) == [("incident", "2")]

    def test_it_can_be_dismissed_until_it_happens_again(
        self, window: MainWindow, engine: FakeEngine, qtbot: QtBot
    ) -> None:
        cards = window.live.findings.cards
        assert not cards["incident", "1"].dismiss.isHidden()
        assert upload_card(window).dismiss.isHidden()
        cards["incident", "1"].dismiss.click()
        qtbot.waitUntil(lambda: ("incident", "1") not in cards, timeout=WAIT_MS)
        now, events = time.monotonic_ns(), EventBatch.empty()
        events.incidents.append(stories.incident(now))
        engine.push(fakes.update(now, events))
        qtbot.waitUntil(lambda: ("incident", "2") in cards, timeout=WAIT_MS)
        assert ("incident", "1") not in cards

    def test_without_a_picture(self, window: MainWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        events = EventBatch.empty()
        events.incidents.append(Incident(time.monotonic_ns(), GPU, "worker-died", "", "signal 9"))
        engine.push(fakes.update(time.monotonic_ns(), events))
        qtbot.waitUntil(lambda: len(window.session.incidents) == 2, timeout=WAIT_MS)
        dialog = window.live.show_incident(2)
        assert dialog is not None
        assert "kept no picture" in self._texts(dialog)
        assert dialog.windowTitle() == "Worker died, incident 2"
        assert window.live.show_incident(77) is None
        dialog.resize(1100, 800)
        qtbot.waitUntil(lambda: dialog.chart is not None and dialog.chart.width() > 1000, timeout=WAIT_MS)
        said = next(x for x in dialog.findChildren(QLabel) if "kept no picture" in x.text())
        assert dialog.headline.height() <= dialog.headline.heightForWidth(dialog.headline.width())
        assert said.height() <= said.sizeHint().height()
        assert dialog.chart is not None
        assert dialog.chart.height() > 600  # all the rest

    def test_without_a_picture_and_without_a_chart(self, theme: Theme, qtbot: QtBot) -> None:
        session = Session()
        session.incidents.extend([Incident(1, GPU, "worker-died", "", "signal 9")])
        dialog = IncidentDialog(theme, session, session.incidents.records[0])
        qtbot.addWidget(dialog)
        dialog.show()
        assert dialog.chart is None
        assert dialog.headline.height() <= dialog.headline.heightForWidth(dialog.headline.width())

    def test_the_flag_on_the_axis_opens_it(self, window: MainWindow, qtbot: QtBot) -> None:
        window.scene.view.show(0.0, 41.5)
        window.charts.frame(True)
        chart = window.charts.memory
        area = chart.area()
        incident = window.session.incidents.records[0].incident
        point = QPointF(area.x_of(incident.time_ns) + 5, 5)
        assert "Out of memory" in (chart.point_at(point) or "")
        chart.plot.clicked.emit(point)
        assert [d.record.number for d in window.live.findChildren(IncidentDialog)] == [1]
        away = QPointF(area.x_of(incident.time_ns) - 60, 5)
        assert "Out of memory" not in (chart.point_at(away) or "")


def test_a_card_grows_with_its_lines_after_the_cards_were_put_in_another_order(
    window: MainWindow, engine: FakeEngine, qtbot: QtBot
) -> None:
    window.resize(1600, 1000)
    now = time.monotonic_ns()
    more = EventBatch.empty()
    more.findings.append(replace(stories.handover_finding(now), kind="lock-handover"))
    engine.push(fakes.update(now, more))
    cards = window.live.findings.cards
    qtbot.waitUntil(lambda: (GPU, "lock-handover") in cards, timeout=WAIT_MS)
    card = cards["incident", "1"]
    window.controller.apply_setting(SettingChange("pipeline.prestage", "locked"))
    qtbot.waitUntil(lambda: card.reason.text().startswith("Since changed"), timeout=WAIT_MS)
    qtbot.waitUntil(lambda: card.height() >= card.heightForWidth(card.width()), timeout=WAIT_MS)
    assert card.body.height() >= card.body.heightForWidth(card.body.width())
