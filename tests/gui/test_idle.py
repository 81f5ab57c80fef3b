"""Idle time: by cause in the models, shaded in the lanes, listed in the table; nothing is claimed unmeasured."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QPointF
from pytestqt.qtbot import QtBot

from cuzk_engine.events import Cause, EventBatch, Gap, Span
from cuzk_gui.charts.scene import Scene
from cuzk_gui.charts.stack import ChartStack
from cuzk_gui.models import causes
from cuzk_gui.models.causes import CAUSES, Blame
from cuzk_gui.models.loads import idle_by_cause, last_minute, load
from cuzk_gui.models.session import Session, Sizes
from cuzk_gui.models.tracks import SpanTrack
from cuzk_gui.theme import Theme
from cuzk_gui.widgets.idle_table import IdleTable
from tests.gui import fakes
from tests.gui.test_charts import SECOND, colour_at, feed, picture
from tests.gui.test_charts import start as begin

MS = 1_000_000


def events(*gaps: Gap, spans: tuple[Span, ...] = ()) -> EventBatch:
    made = EventBatch.empty()
    made.gaps += gaps
    made.spans += spans
    return made


def gap(start: int, end: int, cause: str = Cause.PAGEABLE_UPLOAD, evidence: str = "copied at 6.6 GB/s") -> Gap:
    return Gap(start, end, "cpu", cause, evidence, "job-1", 1)


def test_every_cause_has_words_and_a_blame() -> None:
    assert len({causes.name(cause) for cause in CAUSES}) == len(CAUSES)
    assert all(causes.explanation(cause).endswith(".") for cause in CAUSES)
    assert causes.name("flux-capacitor") == "flux-capacitor"
    assert causes.blame("flux-capacitor") is Blame.UNEXPLAINED


class TestModel:
    def test_time_by_cause_is_cut_to_the_stretch(self, scene: Scene) -> None:
        begin(scene)
        feed(scene, fakes.update(10 * SECOND, events(gap(0, 2 * SECOND), gap(3 * SECOND, 5 * SECOND, Cause.SRS_COLD))))
        rows = idle_by_cause(scene.session.devices["cpu"].gaps, SECOND, 10 * SECOND)
        assert [(row.cause, row.ns, row.gaps) for row in rows] == [
            (Cause.SRS_COLD, 2 * SECOND, 1),
            (Cause.PAGEABLE_UPLOAD, SECOND, 1),
        ]

    def test_an_unknown_cause_counts_as_unknown(self, scene: Scene) -> None:
        begin(scene)
        feed(scene, fakes.update(10 * SECOND, events(gap(0, SECOND, "flux-capacitor"))))
        rows = idle_by_cause(scene.session.devices["cpu"].gaps, 0, 10 * SECOND)
        assert [row.cause for row in rows] == [Cause.UNKNOWN]

    def test_what_no_gap_accounts_for_is_left_over(self, scene: Scene) -> None:
        begin(scene)
        spans = (
            Span(0, 6 * SECOND, "cpu", "compute", "ntt"),
            Span(0, 8 * SECOND, "cpu", "lock", "lock.held"),
            Span(5 * SECOND, 7 * SECOND, "cpu", "h2d", "upload.abc", bytes=10),
        )
        feed(scene, fakes.update(10 * SECOND, events(gap(6 * SECOND, 9 * SECOND), spans=spans)))
        found = load(scene.session, scene.session.devices["cpu"], 0, 10 * SECOND)
        assert (found.measured, found.kernels, found.lock) == (10 * SECOND, 6 * SECOND, 8 * SECOND)
        assert found.copying == SECOND
        assert found.unexplained == SECOND
        assert found.share(found.explained) == pytest.approx(0.3)

    def test_without_the_compute_lane_nothing_is_claimed(self, scene: Scene) -> None:
        begin(scene)
        found = load(scene.session, scene.session.devices["cpu"], 0, SECOND)
        assert found.kernels is None
        assert found.lock is None

    def test_time_without_a_stream_is_not_measured(self, scene: Scene) -> None:
        begin(scene)
        feed(scene, fakes.update(10 * SECOND, events(spans=(Span(0, SECOND, "cpu", "compute", "ntt"),))))
        scene.session.disconnected()
        scene.session.begin_stream(SECOND)
        feed(scene, fakes.update(20 * SECOND, identity=fakes.identity(started_unix_ns=time.time_ns()), memory={}))
        feed(scene, fakes.update(25 * SECOND))
        found = load(scene.session, scene.session.devices["cpu"], 0, 25 * SECOND)
        assert SECOND < 25 * SECOND - found.measured <= 10 * SECOND

    def test_the_last_minute_ends_where_gaps_are_judged(self, scene: Scene) -> None:
        begin(scene)
        feed(scene, fakes.update(100 * SECOND, events(gap(90 * SECOND, 98 * SECOND))))
        assert last_minute(scene.session, scene.session.devices["cpu"]) == (38 * SECOND, 98 * SECOND)

    def test_a_gap_that_is_told_in_steps_is_one(self, scene: Scene) -> None:
        begin(scene)
        none = "s without a kernel: no job ran or waited"
        steps = [
            gap(2 * SECOND, 7 * SECOND, Cause.QUEUE_EMPTY, "5.00 s without a kernel: no job waited, worker 0 verified"),
            gap(7 * SECOND, 12 * SECOND, Cause.QUEUE_EMPTY, f"5.00 {none}"),
            gap(12 * SECOND, 15 * SECOND, Cause.QUEUE_EMPTY, f"3.00 {none}"),
            gap(15 * SECOND, 16 * SECOND, Cause.HOST_STARVED),
        ]
        for one in steps[:2]:
            feed(scene, fakes.update(one.end_ns, events(one)))
        feed(scene, fakes.update(16 * SECOND, events(*steps[2:])))
        gaps = scene.session.devices["cpu"].gaps
        assert gaps.rows["start"].tolist() == [2 * SECOND, 15 * SECOND]
        assert gaps.rows["end"].tolist() == [15 * SECOND, 16 * SECOND]
        assert gaps.evidence(0) == "no job waited, worker 0 verified; no job ran or waited"
        assert gaps.evidence(1) == "copied at 6.6 GB/s"
        assert gaps.window(3 * SECOND, 4 * SECOND) == slice(0, 1)
        rows = idle_by_cause(gaps, 0, 20 * SECOND)
        assert [(row.cause, row.ns, row.gaps) for row in rows] == [
            (Cause.QUEUE_EMPTY, 13 * SECOND, 1),
            (Cause.HOST_STARVED, SECOND, 1),
        ]

    @given(
        st.lists(
            st.tuples(st.integers(0, 200), st.integers(1, 50), st.sampled_from(CAUSES)), min_size=1, max_size=40
        ).map(lambda rows: sorted(rows))
    )
    def test_coarse_levels_hold_the_same_time(self, rows: list[tuple[int, int, str]]) -> None:
        """What is pushed out of the exact rows is still in the levels."""
        session = Session(Sizes(gaps=4))
        at, told = 0, []
        for pause, length, cause in rows:
            at += pause * MS
            told.append(Gap(at, at + length * MS, "cpu", cause, "e"))
            at += length * MS
        session.apply(next(iter(_digests(session, events(*told), at + MS))))
        exact: SpanTrack = session.devices["cpu"].gaps
        end = (at // (4 * MS) + 1) * 4 * MS
        by_level = {row.cause: row.ns for row in idle_by_cause(exact, 0, end)}
        wanted: dict[str, int] = {}
        for one in told:
            wanted[one.cause] = wanted.get(one.cause, 0) + one.end_ns - one.start_ns
        assert by_level.keys() == wanted.keys()
        for cause, took in wanted.items():
            assert by_level[cause] == pytest.approx(took, rel=1e-5, abs=2)


def _digests(session: Session, batch: EventBatch, now: int) -> list:
    from cuzk_gui.models.digest import digests

    return list(digests(fakes.update(now, batch), session.names))


class TestChart:
    def _fed(self, scene: Scene, *gaps: Gap) -> None:
        begin(scene)
        spans = (Span(0, 2 * SECOND, "cpu", "compute", "ntt"), Span(6 * SECOND, 9 * SECOND, "cpu", "compute", "ntt"))
        feed(scene, fakes.update(10 * SECOND, events(*gaps, spans=spans)))

    def _lane(self, stack: ChartStack, name: str) -> float:
        inside = stack.lanes.plot.inside()
        top, bottom = next((a, b) for lane, a, b in stack.lanes._lanes if lane == name)
        return float(inside.top() + (top + bottom) / 2 * inside.height())

    def _x(self, stack: ChartStack, second: float) -> float:
        inside = stack.lanes.plot.inside()
        return float(inside.left() + second / 10 * inside.width())

    def test_a_gap_is_tinted_by_its_blame_on_the_compute_lane_alone(self, scene: Scene, stack: ChartStack) -> None:
        self._fed(scene, gap(2 * SECOND, 4 * SECOND), gap(4 * SECOND, 6 * SECOND, Cause.QUEUE_EMPTY))
        image = picture(stack, stack.lanes)
        y = self._lane(stack, "compute") + 14  # below the text
        colours = scene.colours
        assert colour_at(image, self._x(stack, 2.1), y) == colours.gaps[Blame.SETTINGS]
        assert colour_at(image, self._x(stack, 4.1), y) == colours.gaps[Blame.NOBODY]
        assert colour_at(image, self._x(stack, 9.5), y) == colours.panel  # nothing was said of this time
        assert colour_at(image, self._x(stack, 2.1), self._lane(stack, "h2d")) == colours.panel

    def test_many_gaps_are_shares_of_buckets(self, scene: Scene, stack: ChartStack) -> None:
        rows = [gap(i * MS, i * MS + MS // 2) for i in range(9500)]
        self._fed(scene, *rows)
        image = picture(stack, stack.lanes)
        top, bottom = next((a, b) for lane, a, b in stack.lanes._lanes if lane == "compute")
        inside = stack.lanes.plot.inside()
        upper = inside.top() + top * inside.height() + 8
        lower = inside.top() + bottom * inside.height() - 8
        x = self._x(stack, 4.0)
        assert colour_at(image, x, upper) == scene.colours.gaps[Blame.SETTINGS]
        assert colour_at(image, x, lower) == scene.colours.panel

    def test_a_readout_says_cause_duration_and_evidence(self, scene: Scene, stack: ChartStack) -> None:
        self._fed(scene, gap(2 * SECOND, 4 * SECOND))
        stack.frame(True)
        inside, area = stack.lanes.plot.inside(), stack.lanes.area()
        point = QPointF(0.3 * inside.width(), self._lane(stack, "compute") - inside.top())
        text = stack.lanes.describe(point, area)
        assert text is not None
        assert "pageable upload" in text
        assert "2.00 s" in text
        assert "copied at 6.6 GB/s" in text
        over_kernel = stack.lanes.describe(QPointF(0.1 * inside.width(), point.y()), area)
        assert over_kernel is not None
        assert "NTT" in over_kernel

    def test_steps_of_a_gap_are_drawn_and_told_as_one(self, scene: Scene, stack: ChartStack) -> None:
        none = "s without a kernel: no job ran or waited"
        steps = [gap(2 * SECOND, 4 * SECOND, Cause.QUEUE_EMPTY, f"2.00 {none}")]
        steps.append(gap(4 * SECOND, 6 * SECOND, Cause.QUEUE_EMPTY, f"2.00 {none}"))
        self._fed(scene, *steps)
        stack.frame(True)
        point = QPointF(0.3 * stack.lanes.area().width, self._lane(stack, "compute") - stack.lanes.plot.inside().top())
        told = stack.lanes.describe(point, stack.lanes.area()) or ""
        assert "4.00 s" in told
        assert "2.00 s" not in told
        assert "no job ran or waited" in told
        assert [row[1] for row in stack.lanes.gap_rows(100)] == [4000.0]
        image = picture(stack, stack.lanes)  # one text, in the middle of both
        y = round(self._lane(stack, "compute"))
        plain = scene.colours.gaps[Blame.NOBODY]

        def written(second: float) -> bool:
            near = range(round(self._x(stack, second)) - 20, round(self._x(stack, second)) + 20)
            return any(colour_at(image, x, y + d) != plain for x in near for d in (-3, 0, 3))

        assert [written(second) for second in (3.0, 4.0, 5.0)] == [False, True, False]

    def test_a_click_singles_a_cause_out(self, scene: Scene, stack: ChartStack, qtbot: QtBot) -> None:
        self._fed(scene, gap(2 * SECOND, 4 * SECOND), gap(4 * SECOND, 6 * SECOND, Cause.RESULT_SYNC))
        stack.frame(True)
        inside = stack.lanes.plot.inside()
        point = QPointF(0.3 * inside.width(), self._lane(stack, "compute") - inside.top())
        with qtbot.waitSignal(stack.lanes.cause_chosen) as chosen:
            stack.lanes.plot.clicked.emit(point)
        assert chosen.args == [Cause.PAGEABLE_UPLOAD]
        before = picture(stack, stack.lanes)
        scene.cause = Cause.PAGEABLE_UPLOAD
        after = picture(stack, stack.lanes)
        y = self._lane(stack, "compute") + 14
        assert colour_at(before, self._x(stack, 2.1), y) != colour_at(after, self._x(stack, 2.1), y)
        assert colour_at(after, self._x(stack, 4.1), y) == scene.colours.gaps[Blame.NOBODY]  # the others step back

    def test_gaps_are_a_table_too(self, scene: Scene, stack: ChartStack) -> None:
        self._fed(scene, gap(2 * SECOND, 4 * SECOND))
        ((_, milliseconds, cause, evidence, worker),) = stack.lanes.gap_rows(100)
        assert (milliseconds, cause, evidence, worker) == (2000.0, "pageable upload", "copied at 6.6 GB/s", 1)


class TestIdleTable:
    def test_rows_say_milliseconds_and_shares(self, scene: Scene, theme: Theme, qtbot: QtBot) -> None:
        begin(scene)
        spans = (Span(0, 6 * SECOND, "cpu", "compute", "ntt"), Span(0, 9 * SECOND, "cpu", "lock", "lock.held"))
        told = events(gap(6 * SECOND, 8 * SECOND), gap(8 * SECOND, 9 * SECOND, Cause.LOCK_HANDOVER), spans=spans)
        feed(scene, fakes.update(10 * SECOND, told))
        table = IdleTable(theme)
        qtbot.addWidget(table)
        found = load(scene.session, scene.session.devices["cpu"], 0, 10 * SECOND)
        table.show_load(found, "cpu", "", "last minute")
        assert table.lines == [
            "kernels running: 6,000 ms, 60.0 %",
            "device held: 9,000 ms, 90.0 %",
            "pageable upload: 2,000 ms, 20.0 %",
            "lock hand-over: 1,000 ms, 10.0 %",
            "not judged: 1,000 ms, 10.0 %",
        ]
        with qtbot.waitSignal(table.cause_chosen) as chosen:
            table.rows[Cause.LOCK_HANDOVER].click()
        assert chosen.args == [Cause.LOCK_HANDOVER]

    def test_nothing_measured_is_said_so(self, scene: Scene, theme: Theme, qtbot: QtBot) -> None:
        begin(scene)
        table = IdleTable(theme)
        qtbot.addWidget(table)
        table.show_load(load(scene.session, scene.session.devices["cpu"], 0, SECOND), "cpu", "", "last minute")
        assert table.lines == []
        assert table.empty_text == "No kernel was measured yet."
