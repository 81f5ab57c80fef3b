"""The axis that the charts share: marks, ticks, the mouse, and the same content as tables."""

import itertools

import pytest
from PySide6.QtCore import QPoint, QPointF, QRectF, Qt
from PySide6.QtGui import QImage, QWheelEvent
from pytestqt.qtbot import QtBot

from cuzk_engine.events import Allocation, EventBatch, Incident, Mark
from cuzk_gui.charts.plot import Plot
from cuzk_gui.charts.scene import Scene
from cuzk_gui.charts.stack import ChartStack
from cuzk_gui.charts.table import RowsModel, TableDialog
from tests.gui import fakes, prover
from tests.gui.drawing import colour_at, feed, picture, start
from tests.gui.fakes import MIB

SECOND = 1_000_000_000


class TestAxis:
    def test_marks_cross_all_charts(self, scene: Scene, stack: ChartStack) -> None:
        start(scene)
        events = EventBatch.empty()
        events.marks.append(Mark(5 * SECOND, "setting", "pre-staging → locked"))
        feed(scene, fakes.update(10 * SECOND, events))
        for chart in stack.charts:
            image = picture(stack, chart)
            inside = chart.plot.inside()
            x = round(inside.left() + inside.width() * 0.5)
            column = [colour_at(image, x + d, y) for d in (-1, 0, 1) for y in range(image.height())]
            assert column.count(scene.colours.accent) > 0.3 * inside.height()

    def test_no_line_runs_through_the_text_of_a_mark(self, scene: Scene, stack: ChartStack) -> None:
        start(scene)
        events = EventBatch.empty()
        for moment in (5.3, 5.0, 5.1):  # as they come: not by time
            events.marks.append(Mark(round(moment * SECOND), "setting", f"workers per device, changed at {moment}"))
        events.incidents.append(Incident(round(5.2 * SECOND), "cpu", "worker-died", "", "signal 9"))
        feed(scene, fakes.update(10 * SECOND, events))
        chart = stack.memory
        image = picture(stack, chart)
        area, corner = chart.area(), chart.plot.inside().topLeft()
        texts = chart.marks_at
        assert [text[-3:] for _, text in texts] == ["5.0", "5.1", "5.3"]
        for one, other in itertools.combinations([rect for rect, _ in texts], 2):
            assert not one.intersects(other)
        line = area.x_of(events.incidents[0].time_ns)
        x = round(corner.x() + line)
        crossed = [rect for rect, _ in texts if rect.left() < line < rect.right()]
        assert len(crossed) == 2  # those that begin before it
        for rect in crossed:
            inside = range(round(corner.y() + rect.top()) + 2, round(corner.y() + rect.bottom()) - 2)
            assert scene.colours.bad not in [colour_at(image, x, y) for y in inside]

    def test_marks_close_to_each_other_have_places_above_the_bars(self, scene: Scene, stack: ChartStack) -> None:
        start(scene)
        stack.resize(1200, 1000)
        events = EventBatch.empty()
        events.allocations += [
            Allocation(6 * SECOND, "cpu", 28 * MIB, "msm"),
            Allocation(7 * SECOND, "cpu", -28 * MIB, "msm"),
        ]
        moments = (2.0, 2.1, 2.2, 3.2, 5.0, 5.2, 5.3, 5.5, 9.9)
        events.marks += [Mark(round(s * SECOND), "setting", f"memory budget → {s} MiB") for s in moments]
        feed(scene, fakes.update(10 * SECOND, events))
        chart = stack.memory
        picture(stack, chart)
        area, tops = chart.area(), chart.tops(chart.area())
        assert tops is not None
        assert [text for _, text in chart.marks_at] == [mark.text for mark in events.marks]
        over = []
        for rect, text in chart.marks_at:
            assert rect.top() >= 24  # the capacity is said there
            assert 0 <= rect.left() < rect.right() <= area.width
            if rect.bottom() >= tops[int(rect.left()) : int(rect.right()) + 1].min():
                over.append(text)
        assert over == []
        line = area.x_of(events.marks[0].time_ns)
        assert chart.marks_at[0][0].left() == pytest.approx(line + 2, abs=1)
        assert chart.marks_at[-1][0].right() == pytest.approx(area.x_of(events.marks[-1].time_ns) - 2, abs=1)

    @pytest.mark.parametrize("moments", [(0.4, 1.0, 1.6), (0.4, 9.0), (0.4, 1.0, 9.0, 9.9)])
    def test_nothing_runs_through_what_is_said_of_the_capacity(
        self, scene: Scene, stack: ChartStack, moments: tuple[float, ...]
    ) -> None:
        start(scene)
        events = EventBatch.empty()
        for moment in moments:
            events.incidents.append(Incident(round(moment * SECOND), "cpu", "worker-died", "", "signal 9"))
        for moment in (0.6, 5.0, 9.5):
            events.marks.append(Mark(round(moment * SECOND), "setting", "pre-staging → locked"))
        feed(scene, fakes.update(10 * SECOND, events))
        chart = stack.memory
        image = picture(stack, chart)
        area, corner = chart.area(), chart.plot.inside().topLeft()
        (said,) = chart.words_at
        for incident in events.incidents:
            x = area.x_of(incident.time_ns)
            assert not said.intersects(QRectF(x, 0, 13, area.height))
        row = [round(corner.y() + said.top()) + n for n in range(3, round(said.height()) - 2)]
        across = range(round(corner.x() + said.left()) + 1, round(corner.x() + said.right()) - 1)
        assert scene.colours.accent not in {colour_at(image, x, y) for x in across for y in row}

    def test_plots_share_their_edges(self, scene: Scene, stack: ChartStack) -> None:
        start(scene)
        stack.frame(True)
        edges = {(round(c.plot.inside().left()), round(c.plot.inside().right())) for c in stack.charts}
        assert len(edges) == 1

    def test_relative_while_following_else_since_the_start(self, scene: Scene, stack: ChartStack) -> None:
        start(scene)
        feed(scene, fakes.update(100 * SECOND))
        stack.frame(True)
        assert stack.lanes.plot.x_range == pytest.approx([-10.0, 0.0])
        assert not stack.follow.isVisible()
        scene.view.pan(-30)
        stack.frame(True)
        assert stack.lanes.plot.x_range == pytest.approx([60.0, 70.0])
        assert stack.follow.isVisible()
        stack.follow.click()
        stack.frame(True)
        assert scene.view.following

    def test_nothing_new_is_not_painted(self, scene: Scene, stack: ChartStack) -> None:
        start(scene)
        feed(scene, fakes.update(100 * SECOND))
        scene.view.pan(-5)
        assert stack.frame(True)
        assert not stack.frame(True)
        scene.session.version += 1
        assert stack.frame(True)

    def test_pointer_draws_on_all_charts(self, scene: Scene, stack: ChartStack, qtbot: QtBot) -> None:
        start(scene)
        feed(scene, fakes.update(100 * SECOND))
        stack.frame(True)
        inside = stack.memory.plot.inside()
        qtbot.mouseMove(stack.memory.plot, inside.center().toPoint())
        stack.memory.plot.pointed.emit(QPointF(inside.width() / 2, 10))
        stack.frame(True)
        assert scene.pointer == pytest.approx(95, abs=0.5)
        assert stack._tip.isVisible()
        stack.memory.plot.pointed.emit(None)
        assert not stack._tip.isVisible()


class TestMouse:
    """Of a plot: the time view follows it."""

    @pytest.fixture
    def plot(self, scene: Scene, stack: ChartStack) -> Plot:
        start(scene)
        feed(scene, fakes.update(100 * SECOND))
        scene.view.show(20.0, 30.0)
        stack.frame(True)
        return stack.lanes.plot

    def at(self, plot: Plot, share: float) -> QPoint:
        inside = plot.inside()
        return QPoint(round(inside.left() + inside.width() * share), round(inside.center().y()))

    def test_a_drag_pans_and_is_no_click(self, scene: Scene, plot: Plot, qtbot: QtBot) -> None:
        clicks: list[QPointF] = []
        plot.clicked.connect(clicks.append)
        qtbot.mousePress(plot, Qt.MouseButton.LeftButton, pos=self.at(plot, 0.5))
        qtbot.mouseMove(plot, self.at(plot, 0.4))
        qtbot.mouseMove(plot, self.at(plot, 0.3))
        qtbot.mouseRelease(plot, Qt.MouseButton.LeftButton, pos=self.at(plot, 0.3))
        assert scene.view.start == pytest.approx(22.0, abs=0.05)
        assert clicks == []
        qtbot.mouseMove(plot, self.at(plot, 0.8))
        assert scene.view.start == pytest.approx(22.0, abs=0.05)  # the button is up again

    def test_a_click_is_where_it_was(self, scene: Scene, plot: Plot, qtbot: QtBot) -> None:
        with qtbot.waitSignal(plot.clicked) as clicked:
            qtbot.mouseClick(plot, Qt.MouseButton.LeftButton, pos=self.at(plot, 0.25))
        assert plot.seconds_at(clicked.args[0].x()) == pytest.approx(22.5, abs=0.02)
        assert scene.view.start == 20.0

    def test_a_double_click_follows(self, scene: Scene, plot: Plot, qtbot: QtBot) -> None:
        qtbot.mouseDClick(plot, Qt.MouseButton.LeftButton, pos=self.at(plot, 0.5))
        assert scene.view.following

    @pytest.mark.parametrize(
        ("angle", "modifiers", "start", "width"),
        [
            (QPoint(0, 120), Qt.KeyboardModifier.NoModifier, 20.5, 8.0),  # about the pointer at a quarter
            (QPoint(0, -120), Qt.KeyboardModifier.NoModifier, 19.375, 12.5),
            (QPoint(0, 120), Qt.KeyboardModifier.ShiftModifier, 19.0, 10.0),
            (QPoint(-120, 0), Qt.KeyboardModifier.NoModifier, 21.0, 10.0),
        ],
    )
    def test_the_wheel(
        self, scene: Scene, plot: Plot, angle: QPoint, modifiers: Qt.KeyboardModifier, start: float, width: float
    ) -> None:
        position = QPointF(self.at(plot, 0.25))
        wheel = QWheelEvent(
            position,
            plot.mapToGlobal(position),
            QPoint(),
            angle,
            Qt.MouseButton.NoButton,
            modifiers,
            Qt.ScrollPhase.NoScrollPhase,
            False,
        )
        plot.wheelEvent(wheel)
        assert (scene.view.start, scene.view.width) == (pytest.approx(start, abs=0.02), pytest.approx(width))

    def test_outside_nothing_is_pointed_at(self, plot: Plot, qtbot: QtBot) -> None:
        seen: list[QPointF | None] = []
        plot.pointed.connect(seen.append)
        qtbot.mouseMove(plot, self.at(plot, 0.5))
        qtbot.mouseMove(plot, QPoint(3, 3))
        qtbot.waitUntil(lambda: len(seen) >= 2, timeout=5000)
        assert seen[0] is not None
        assert seen[-1] is None

    def test_crowded_labels_are_left_out_instead_of_lying_on_each_other(self, plot: Plot) -> None:
        few, many = QImage(plot.size(), QImage.Format.Format_RGB32), QImage(plot.size(), QImage.Format.Format_RGB32)
        plot.set_left([(0.5, "lane")], 0.0, 1.0)
        plot.render(few)
        plot.set_left([(0.5, "lane"), (0.501, "lane"), (0.502, "lane")], 0.0, 1.0)
        plot.render(many)
        assert few.copy(0, 0, 76, plot.height()) == many.copy(0, 0, 76, plot.height())


class TestTable:
    def test_same_content_sortable(self, scene: Scene, stack: ChartStack, qtbot: QtBot) -> None:
        start(scene)
        events = prover.proof_events(2 * SECOND, 5 * SECOND, 0, "job-1")
        events.marks.append(Mark(5 * SECOND, "setting", "pre-staging → locked"))
        feed(scene, fakes.update(10 * SECOND, events))
        dialog = TableDialog(stack, scene.session)
        qtbot.addWidget(dialog)
        models = [view.model() for view in dialog._views]
        assert models[2].rowCount() == len(events.spans)
        assert models[1].rowCount() == sum(s.lane in ("h2d", "d2h") for s in events.spans)
        assert models[4].rowCount() == 1
        durations = [models[2].index(row, 3) for row in range(models[2].rowCount())]
        assert len(durations) > 10
        models[2].sort(3, Qt.SortOrder.DescendingOrder)
        values = [float(models[2].index(row, 3).data().replace(",", "")) for row in range(models[2].rowCount())]
        assert values == sorted(values, reverse=True)

    def test_mixed_columns_sort(self) -> None:
        model = RowsModel(["a"], [("–",), (3,), (1.5,)])
        model.sort(0)
        assert [model.index(r, 0).data() for r in range(3)] == ["1.5", "3", "–"]
