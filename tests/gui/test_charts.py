"""Charts: what is painted, how much, and what is said about a point."""

import time

import numpy as np
import pytest
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QColor
from pytestqt.qtbot import QtBot

from cuzk_engine.client import ProcessState
from cuzk_engine.events import Allocation, EventBatch, Sample, Span
from cuzk_gui.charts.scene import Scene
from cuzk_gui.charts.stack import ChartStack
from cuzk_gui.models.groups import Group
from tests.gui import fakes
from tests.gui.conftest import OpenWindow
from tests.gui.drawing import colour_at, count, feed, picture, start
from tests.gui.fakes import MIB, FakeEngine
from tests.gui.prover import Prover

SECOND = 1_000_000_000


class TestMemory:
    def test_purposes_have_the_height_of_their_bytes(self, scene: Scene, stack: ChartStack) -> None:
        start(scene)
        events = EventBatch.empty()
        events.allocations.append(Allocation(5 * SECOND, "cpu", 2 * MIB, "abc"))
        feed(scene, fakes.update(10 * SECOND, events))
        image = picture(stack, stack.memory)
        inside = stack.memory.plot.inside()
        x = inside.left() + inside.width() * 0.75
        column = [colour_at(image, x, y) for y in range(round(inside.top()), round(inside.bottom()))]
        srs, abc = column.count(scene.colours.purpose("srs")), column.count(scene.colours.purpose("abc"))
        assert srs > 20
        assert abc == pytest.approx(srs / 2, abs=2)
        early = [
            colour_at(image, inside.left() + inside.width() * 0.25, y)
            for y in range(round(inside.top()), round(inside.bottom()))
        ]
        assert scene.colours.purpose("abc") not in early

    def test_a_lost_stream_leaves_a_gap(self, scene: Scene, stack: ChartStack) -> None:
        start(scene)
        feed(scene, fakes.update(4 * SECOND))
        scene.session.disconnected()
        scene.view.set_now(10.0)
        image = picture(stack, stack.memory)
        inside = stack.memory.plot.inside()
        bottom = inside.bottom() - 4
        assert colour_at(image, inside.left() + inside.width() * 0.2, bottom) == scene.colours.purpose("srs")
        after = {colour_at(image, inside.left() + inside.width() * s, bottom) for s in (0.45, 0.5, 0.6, 0.9)}
        assert scene.colours.purpose("srs") not in after
        described = stack.memory.describe(QPointF(inside.width() * 0.7, 5), stack.memory.area())
        assert described is not None
        assert "no data" in described

    def test_other_processes_only_where_they_were_read(self, scene: Scene, stack: ChartStack) -> None:
        start(scene)
        stack.memory.scale.chosen.emit("capacity")
        events = EventBatch.empty()
        events.samples += [Sample(1 * SECOND, "cpu", memory_other=4 * fakes.GIB), Sample(2 * SECOND, "cpu")]
        feed(scene, fakes.update(10 * SECOND, events))
        image = picture(stack, stack.memory)
        inside = stack.memory.plot.inside()
        y = inside.bottom() - inside.height() * 0.3
        colour = scene.colours.purpose("processes")
        assert colour_at(image, inside.left() + inside.width() * 0.15, y) == colour
        assert colour_at(image, inside.left() + inside.width() * 0.5, y) != colour

    def test_capacity_line(self, scene: Scene, stack: ChartStack) -> None:
        start(scene, {("cpu", "srs"): 6 * fakes.GIB})
        feed(scene, fakes.update(10 * SECOND))
        image = picture(stack, stack.memory)
        assert count(image, scene.colours.bad) > 500
        assert stack.memory.scale.value == "capacity"

    def test_a_capacity_beyond_the_scale_stands_above_a_broken_axis(self, scene: Scene, stack: ChartStack) -> None:
        start(scene)
        feed(scene, fakes.update(10 * SECOND))
        image = picture(stack, stack.memory)
        assert stack.memory.scale.value == "engine use"
        inside = stack.memory.plot.inside()
        x = inside.left() + inside.width() * 0.75
        column = [colour_at(image, x, y) for y in range(round(inside.top()), round(inside.bottom()))]
        assert scene.colours.bad in column[:8]
        assert scene.colours.purpose("srs") not in column[:20]
        assert max(value for value, _ in stack.memory._ticks) < stack.memory._top

    def test_what_is_painted_once_has_its_unit(self, scene: Scene, stack: ChartStack, qtbot: QtBot) -> None:
        """A recording does not change, so nobody asks for another picture of it."""
        start(scene, {("cpu", "srs"): 6 * fakes.GIB})
        feed(scene, fakes.update(10 * SECOND))
        picture(stack, stack.memory)
        qtbot.waitUntil(lambda: stack.memory._note.text() == "GiB")

    def test_an_idle_engine_keeps_the_scale_of_its_work(self, scene: Scene, stack: ChartStack) -> None:
        start(scene, {("cpu", "ntt"): 4 * MIB})
        events = EventBatch.empty()
        events.allocations += [
            Allocation(5 * SECOND, "cpu", 28 * MIB, "msm"),
            Allocation(6 * SECOND, "cpu", -28 * MIB, "msm"),
        ]
        feed(scene, fakes.update(10 * SECOND, events))
        picture(stack, stack.memory)
        busy = stack.memory._scale_end
        feed(scene, fakes.update(100 * SECOND))
        picture(stack, stack.memory)
        assert stack.memory._scale_end == busy >= 32 * MIB

    def test_the_table_leaves_out_what_was_never_held(self, scene: Scene, stack: ChartStack) -> None:
        start(scene)
        feed(scene, fakes.update(10 * SECOND))
        assert list(stack.memory.columns()) == ["Time", "srs, bytes", "Together, bytes"]
        assert stack.memory.rows(10)[-1][1:] == (4 * MIB, 4 * MIB)

    def test_readout(self, scene: Scene, stack: ChartStack) -> None:
        start(scene)
        feed(scene, fakes.update(10 * SECOND))
        stack.frame(True)
        text = stack.memory.describe(QPointF(300, 10), stack.memory.area())
        assert text is not None
        assert "srs" in text
        assert "4.00 MiB" in text
        assert "of 8.00 GiB" in text


class TestLanes:
    def test_thirty_thousand_spans_stay_few_rectangles(self, scene: Scene, stack: ChartStack) -> None:
        start(scene)
        events = EventBatch.empty()
        length = 10 * SECOND // 30_000
        for i in range(30_000):
            kind = ("ntt", "msm.accumulate")[i % 2]
            events.spans.append(Span(i * length, i * length + length // 2, "cpu", "compute", kind, worker=i % 2))
        feed(scene, fakes.update(10 * SECOND, events))
        began = time.thread_time()
        image = picture(stack, stack.lanes)
        assert time.thread_time() - began < 1.0
        assert 0 < stack.lanes.batch.painted <= 4 * stack.lanes.plot.width()
        assert count(image, scene.colours.purpose("ntt")) > 100
        assert count(image, scene.colours.purpose("msm")) > 100
        scene.view.show(1.0, 1.01)
        picture(stack, stack.lanes)
        assert 20 <= stack.lanes.batch.painted <= 40  # exactly those in view

    def test_span_is_where_and_what_it_is(self, scene: Scene, stack: ChartStack) -> None:
        start(scene)
        events = EventBatch.empty()
        events.spans.append(Span(4 * SECOND, 6 * SECOND, "cpu", "compute", "msm.accumulate", "job-9", 2, 1, 5 * MIB))
        feed(scene, fakes.update(10 * SECOND, events))
        image = picture(stack, stack.lanes)
        inside = stack.lanes.plot.inside()
        lane = next(item for item in stack.lanes._lanes if item[0] == "compute")
        y = inside.top() + inside.height() * (lane[1] * 0.8 + lane[2] * 0.2)
        msm = scene.colours.purpose("msm")
        assert colour_at(image, inside.left() + inside.width() * 0.45, y) == msm
        assert colour_at(image, inside.left() + inside.width() * 0.35, y) != msm
        assert colour_at(image, inside.left() + inside.width() * 0.65, y) != msm
        at = QPointF(inside.width() * 0.5, inside.height() * (lane[1] + lane[2]) / 2)
        text = stack.lanes.describe(at, stack.lanes.area())
        assert text is not None
        for part in ("MSM: bucket accumulation", "2.00 s", "5.00 MiB", "worker", "1"):
            assert part in text
        assert stack.lanes.describe(QPointF(5, at.y()), stack.lanes.area()) is None

    def test_a_lane_for_each_worker(self, scene: Scene, stack: ChartStack) -> None:
        feed(scene, fakes.update(0, identity=fakes.identity(devices=(fakes.device(workers=5),)), memory={}))
        stack.frame(True)
        stack.lanes.plot.grab()
        assert [lane for lane, _, _ in stack.lanes._lanes][4:] == [f"host:{n}" for n in range(5)]

    def test_short_spans_are_seen_however_many_there_are(self, scene: Scene, stack: ChartStack) -> None:
        start(scene)
        events = EventBatch.empty()
        step = 10 * SECOND // 20_000
        for i in range(20_000):
            events.spans.append(Span(i * step, i * step + step // 200, "cpu", "d2h", "download.result", bytes=8))
        feed(scene, fakes.update(10 * SECOND, events))
        image = picture(stack, stack.lanes)
        inside = stack.lanes.plot.inside()
        assert count(image, scene.colours.groups[Group.DOWN]) >= 0.95 * inside.width()


class TestTransfers:
    def test_up_and_down_and_pinned(self, scene: Scene, stack: ChartStack) -> None:
        start(scene)
        events = EventBatch.empty()
        events.spans += [
            Span(1 * SECOND, 2 * SECOND, "cpu", "h2d", "upload.abc", bytes=10**10, pinned=True),
            Span(3 * SECOND, 4 * SECOND, "cpu", "h2d", "upload.abc", bytes=5 * 10**9, pinned=False),
            Span(5 * SECOND, 6 * SECOND, "cpu", "d2h", "download.result", bytes=4 * 10**9, pinned=True),
        ]
        feed(scene, fakes.update(10 * SECOND, events))
        image = picture(stack, stack.transfers)
        area, inside = stack.transfers.area(), stack.transfers.plot.inside()
        zero = inside.top() + float(stack.transfers._y(area, np.float64(0)))
        groups = scene.colours.groups

        def colours(share: float) -> tuple[int, int]:
            x = inside.left() + inside.width() * share
            up = [colour_at(image, x, y) for y in range(round(inside.top()), round(zero))]
            down = [colour_at(image, x, y) for y in range(round(zero) + 1, round(inside.bottom()))]
            bar = {groups[g] for g in groups} - {scene.colours.panel}
            return sum(c in bar for c in up), sum(c in bar for c in down)

        pinned, pageable, down = colours(0.15), colours(0.35), colours(0.55)
        assert pinned[1] == pageable[1] == down[0] == 0
        assert pageable[0] == pytest.approx(pinned[0] / 2, abs=2)
        assert down[1] == pytest.approx(pinned[0] * 0.4, abs=2)
        text = stack.transfers.describe(QPointF(inside.width() * 0.15, 5), area)
        assert text is not None
        assert "10.0 GB/s" in text
        assert "page-locked" in text


class TestInTheWindow:
    def test_keys(self, open_window: OpenWindow, qtbot: QtBot) -> None:
        engine = FakeEngine(ProcessState.READY)
        window = open_window(engine)
        qtbot.waitUntil(lambda: window.session.identity is not None, timeout=8000)
        window.activateWindow()
        view = window.scene.view
        width = view.width
        qtbot.keyClick(window, Qt.Key.Key_Plus)
        assert view.width == width / 2
        qtbot.keyClick(window, Qt.Key.Key_Minus)
        assert view.width == width
        qtbot.keyClick(window, Qt.Key.Key_Left)
        assert not view.following
        qtbot.keyClick(window, Qt.Key.Key_F)
        assert view.following

    def test_streaming_proofs_are_drawn(self, open_window: OpenWindow, qtbot: QtBot) -> None:
        engine = FakeEngine(ProcessState.READY)
        window = open_window(engine)
        prover = Prover(engine, proof_s=0.4, back_s=12)
        prover.start()
        try:
            qtbot.waitUntil(lambda: window.charts.lanes.batch.painted > 100, timeout=8000)
            qtbot.waitUntil(lambda: window.charts.memory.batch.painted > 50, timeout=8000)
            qtbot.waitUntil(lambda: "verified in 4 ms" in window.log.text.toPlainText(), timeout=8000)
            for chart in window.charts.charts:
                assert chart.plot.accessibleName() == f"{chart.title}, chart"
        finally:
            prover.stop()


def test_transfers_keep_their_scale_while_nothing_is_uploaded(scene: Scene, stack: ChartStack) -> None:
    start(scene)
    events = EventBatch.empty()
    events.spans.append(Span(SECOND, 2 * SECOND, "cpu", "h2d", "upload.abc", bytes=8 * fakes.GIB))
    feed(scene, fakes.update(5 * SECOND, events))
    picture(stack, stack.transfers)
    top = stack.transfers._up
    assert top > 8 * fakes.GIB
    late = EventBatch.empty()
    late.spans.append(Span(50 * SECOND, 51 * SECOND, "cpu", "d2h", "download.result", bytes=MIB))
    feed(scene, fakes.update(55 * SECOND, late))
    picture(stack, stack.transfers)
    assert stack.transfers._up == top


GPU_SAMPLES = [
    Sample(
        n * SECOND // 2,
        "cpu",
        memory_reserved=12 * MIB,
        memory_other=4 * MIB,
        memory_capacity=32 * MIB,
        pcie_rx=None if n in (8, 9) else 2e9,
        pcie_tx=None if n in (8, 9) else 1e9,
    )
    for n in range(1, 20)
]


class TestCard:
    """What a GPU measures: a pool, other programs, bus counters."""

    def _fed(self, scene: Scene) -> None:
        device = fakes.device(capacity=32 * MIB)
        identity = fakes.identity(devices=(device,), started_unix_ns=time.time_ns())
        memory = {("cpu", "srs"): 4 * MIB, ("cpu", "context"): 2 * MIB}
        feed(scene, fakes.update(0, identity=identity, memory=memory))
        events = EventBatch.empty()
        events.samples += GPU_SAMPLES
        events.spans.append(Span(2 * SECOND, 3 * SECOND, "cpu", "h2d", "upload.abc", bytes=3 * 10**9, pinned=True))
        feed(scene, fakes.update(10 * SECOND, events))

    def _x(self, plot, second: float) -> float:
        inside = plot.inside()
        return float(inside.left() + second / 10 * inside.width())

    def test_pool_and_others_stand_on_the_purposes(self, scene: Scene, stack: ChartStack) -> None:
        self._fed(scene)
        image = picture(stack, stack.memory)
        inside = stack.memory.plot.inside()
        colours = scene.colours

        def at(mib: float) -> str:
            y = inside.bottom() - mib * MIB / stack.memory._top * inside.height()
            return colour_at(image, self._x(stack.memory.plot, 5.0), y)

        # the pool's 12 MiB hold the key, the context of 2 MiB is not of it: 14 MiB together
        assert at(2) == colours.purpose("srs")
        assert at(5) == colours.purpose("context")
        assert at(10) == colours.pool
        assert at(16) == colours.purpose("processes")
        assert at(22) == colours.panel
        assert [name for name, _ in stack.memory.legend()] == ["srs", "context", "kept by the pool", "other processes"]
        text = stack.memory.describe(QPointF(0.5 * inside.width(), 50), stack.memory.area())
        assert text is not None
        assert "kept by the pool, not in use" in text
        assert "8.00 MiB" in text

    def test_a_plan_is_a_line(self, scene: Scene, stack: ChartStack) -> None:
        self._fed(scene)
        before = count(picture(stack, stack.memory), scene.colours.muted)
        scene.plan = 24 * MIB
        assert count(picture(stack, stack.memory), scene.colours.muted) > before + 100

    def test_counters_have_a_hole_where_they_were_not_read(self, scene: Scene, stack: ChartStack) -> None:
        self._fed(scene)
        image = picture(stack, stack.transfers)
        plot = stack.transfers.plot
        inside = plot.inside()
        muted = QColor(scene.colours.muted).name()

        def column(second: float) -> set[str]:
            x = self._x(plot, second)
            return {colour_at(image, x, y) for y in range(round(inside.top()), round(inside.bottom()))}

        assert muted in column(6.2)
        assert muted not in column(4.2)  # readings 8 and 9 cover 3.5 s to 4.5 s
        y = inside.top() + float(stack.transfers._y(stack.transfers.area(), np.float64(0))) - inside.top()
        assert muted not in {colour_at(image, self._x(plot, 4.2), inside.top() + y + d) for d in (-1, 0, 1)}

    def test_a_counter_is_read_out(self, scene: Scene, stack: ChartStack) -> None:
        self._fed(scene)
        stack.frame(True)
        inside, area = stack.transfers.plot.inside(), stack.transfers.area()
        read = stack.transfers.describe(QPointF(0.62 * inside.width(), 3), area)
        assert read is not None
        assert "2.00 GB/s" in read
        assert "1.00 GB/s" in read
        unread = stack.transfers.describe(QPointF(0.42 * inside.width(), 3), area)
        assert unread is not None
        assert unread.count("not read") == 2

    def test_an_average_covers_the_time_before_its_reading(self, scene: Scene, stack: ChartStack) -> None:
        self._fed(scene)
        samples = scene.session.devices["cpu"].samples
        start, end, value = samples.averages("pcie_rx", 0, 10 * SECOND)
        assert (int(start[0]), int(end[0]), float(value[0])) == (SECOND // 2, SECOND, 2e9)
        assert 9 * SECOND // 2 not in end
        assert len(start) == len(GPU_SAMPLES) - 1 - 2
