"""Device memory by purpose, stacked, other processes on top, under the line of the capacity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QFontMetricsF, QPainter, QPen, QPolygonF

from cuzk_gui.charts.bands import Bands, Levels
from cuzk_gui.charts.chart import FLAG_HEIGHT, FLAG_WIDTH, Chart, LegendEntry, Row, swatch, tooltip
from cuzk_gui.charts.paint import Area, dashed
from cuzk_gui.charts.scene import Scene
from cuzk_gui.models import words
from cuzk_gui.models.columns import Array
from cuzk_gui.models.memory import PURPOSE_INDEX, PURPOSES
from cuzk_gui.models.session import DeviceTimeline
from cuzk_gui.models.view import nice_step
from cuzk_gui.theme import ui_font
from cuzk_gui.widgets.controls import Segmented, label

_CONTEXT = PURPOSE_INDEX["context"]  # not of the pool
_TO_CAPACITY = 0.2  # above this share of the capacity the whole device is shown unless somebody chose otherwise
_USE, _CAPACITY = "engine use", "capacity"
_BREAK = 24  # pixels above the scale where the axis is broken and the capacity drawn
_LEAST_FOR_PLAN = 64  # pixels of height
_MOST_IDLE = 8.0  # a level that stands still is shown no smaller than this part of the scale


class MemoryChart(Chart):
    title = "Device memory"  # by purpose
    shows_marks = True

    def __init__(self, scene: Scene, *, bottom_axis: bool = False) -> None:
        super().__init__(scene, bottom_axis=bottom_axis)
        self.scale = Segmented((_USE, _CAPACITY), "Scale of the memory chart")
        tip = (
            "<p><b>engine use</b>: the scale ends at what the engine holds; the capacity is drawn above a broken "
            "axis.</p><p><b>capacity</b>: the scale ends at the memory of the device, other processes included.</p>"
        )
        self.scale.setToolTip(tip)
        self.scale.chosen.connect(self._scale_chosen)
        self._scale_to: str | None = None
        name = label("Scale to", "muted")
        name.setToolTip(tip)
        self.header.insertWidget(3, name)
        self.header.insertWidget(4, self.scale)
        self._top = 1.0  # bytes at the upper edge
        self._scale_end = 1.0  # bytes where the scale ends: below the edge when the axis is broken
        self._busy_peak = (scene.device, 0.0)
        self._unit = ("MiB", float(2**20))
        self._said: list[tuple[QPointF, str, QColor]] = []  # texts of the last frame, with where they begin
        self._painted: tuple[Levels, Bands | None, int] | None = None  # what the last frame's bars are of

    def note(self) -> str:
        return self._unit[0]

    def legend(self) -> Sequence[LegendEntry]:
        """The purposes that this device has ever held."""
        colours, timeline = self.scene.colours, self.scene.timeline
        if timeline is None:
            return ()
        held = timeline.memory.seen
        shown = [(name, colours.purpose(name)) for name, seen in zip(PURPOSES, held, strict=True) if seen]
        if timeline.samples.ever("memory_reserved"):
            shown.append(("kept by the pool", colours.pool))
        if self.scale.value == _CAPACITY and timeline.samples.latest("memory_other"):
            shown.append(("other processes", colours.purpose("processes")))
        return shown

    def paint_content(self, painter: QPainter, area: Area) -> None:
        self._said, self._painted = [], None
        timeline = self.scene.timeline
        capacity = self.scene.capacity
        if timeline is None or not len(timeline.memory.rows):
            self.set_ticks([], 0.0, 1.0)
            self.say_empty(painter, area)
            return
        known_ns = min(self.scene.known_ns, area.start_ns + area.span_ns)
        times, values, known = timeline.memory.steps(area.start_ns, known_ns, area.pixel_ns)
        ends = np.append(times[1:], known_ns) if len(times) else times
        totals = values.sum(axis=1) if len(values) else np.zeros(0)
        starts, stops, others = timeline.samples.steps("memory_other", area.start_ns, known_ns)
        pool = Bands(*timeline.samples.steps("memory_reserved", area.start_ns, known_ns), known_ns)
        peak = float(totals[known].max()) if known.any() else 0.0
        own = self._steady(peak, float(totals[known].min()) if known.any() else 0.0)
        own = max(own, pool.highest)
        whole = self._scale(area, own, own + (float(others.max()) if len(others) else 0.0), capacity)
        self._grid(painter, area)
        self._unknown(painter, area, times, ends, known)
        self._purposes(painter, area, times, ends, values, known)
        context = values[:, _CONTEXT] if len(values) else totals
        level = Levels(times, totals, context)
        if len(pool.starts):
            self._band(painter, area, pool, level, QBrush(QColor(self.scene.colours.pool)), of_pool=True)
        level = level.raised(pool)
        rest = Bands(starts, stops, others, known_ns) if whole and len(others) and others.any() else None
        self._painted = level, rest, known_ns
        if rest is not None:
            self._band(painter, area, rest, level, QBrush(QColor(self.scene.colours.purpose("processes"))))
        self._plan(painter, area)
        self._capacity(painter, area, capacity, int(others[-1]) if len(others) and not whole else 0)

    def paint_words(self, painter: QPainter, area: Area) -> list[QRectF]:
        """With the panel's colour behind them, so that they can be read on bars and over lines."""
        painter.setFont(ui_font(11))
        metrics = QFontMetricsF(painter.font())
        ground = QColor(self.scene.colours.panel)
        ground.setAlphaF(0.92)
        found = []
        for base, text, colour in self._said:
            wide = metrics.horizontalAdvance(text)
            found.append(QRectF(base.x() - 3, base.y() - metrics.ascent(), wide + 6, metrics.height() + 1))
            painter.fillRect(found[-1], ground)
            painter.setPen(colour)
            painter.drawText(base, text)
        return found

    def tops(self, area: Area) -> Array | None:
        """Of what the engine holds the most in each column, of readings those in its middle."""
        if self._painted is None:
            return None
        level, rest, known_ns = self._painted
        edges = area.start_ns + np.arange(int(area.width) + 1) * area.pixel_ns
        first = np.maximum(np.searchsorted(level.times, edges[:-1], side="right") - 1, 0)
        last = np.maximum(np.searchsorted(level.times, edges[1:], side="left"), first + 1)
        totals = np.append(level.totals, 0.0)
        most = np.maximum.reduceat(totals, np.column_stack([first, np.minimum(last, len(totals) - 1)]).ravel())[::2]
        middle = (edges[:-1] + edges[1:]) / 2
        most = np.maximum(most, level.at(middle))
        if rest is not None:
            amount, there = rest.at(middle)
            most = most + np.where(there, amount, 0.0)
        return np.where(edges[:-1] < known_ns, self._y(area, most), area.height)

    def _y(self, area: Area, value: Array | np.float64) -> Array:
        return np.round(area.height - value * (area.height / self._top))

    def _scale_chosen(self, choice: str) -> None:
        self._scale_to = choice
        self.refresh()

    def _steady(self, peak: float, least: float) -> float:
        """The peak that the scale is made for: while the level stands still, the last peak of work, so that the scale
        stays and what an idle engine holds does not fill the chart."""
        device, busy = self._busy_peak
        if device != self.scene.device or peak > least or peak > busy:
            self._busy_peak = (self.scene.device, peak)
            return peak
        return min(busy, peak * _MOST_IDLE)

    def _scale(self, area: Area, own: float, together: float, capacity: int | None) -> bool:
        """Sets the range from the peaks in view; whether the whole device is shown."""
        whole = self._scale_to == _CAPACITY
        if self._scale_to is None and capacity is not None:
            whole = own > _TO_CAPACITY * capacity or together > 0.9 * capacity
        self.scale.set_value(_CAPACITY if whole else _USE)
        target = max(own * 1.12, 2.0**20)
        if whole:
            target = max(together * 1.05, (capacity or 0) * 1.08, 2.0**20)
        self._unit = words.binary_unit(target)
        step = nice_step(target / self._unit[1], 5) * self._unit[1]
        end = target if whole else float(np.ceil(target / step) * step)
        self._scale_end = self._top = end
        self.marks_top = FLAG_HEIGHT + 2
        if capacity and capacity > end and area.height > 2 * _BREAK:
            self.marks_top = float(_BREAK)
            self._top = end * area.height / (area.height - _BREAK)
        self._step = step
        count = int(end / step + 1e-9)
        self.set_ticks([(i * step, f"{i * step / self._unit[1]:g}") for i in range(count + 1)], 0.0, self._top)
        return whole

    def _grid(self, painter: QPainter, area: Area) -> None:
        painter.setPen(QPen(QColor(self.scene.colours.grid), 1))
        for i in range(int(self._scale_end / self._step + 1e-9) + 1):
            y = min(float(self._y(area, np.float64(i * self._step))), area.height - 1)
            painter.drawLine(QPointF(0, y), QPointF(area.width, y))

    def _unknown(self, painter: QPainter, area: Area, times: Array, ends: Array, known: Array) -> None:
        lost = ~known
        if not lost.any():
            return
        x0, x1 = area.x(times[lost]), area.x(ends[lost])
        x0 = np.maximum(x0, 0)
        brush = QBrush(QColor(self.scene.colours.border), Qt.BrushStyle.BDiagPattern)
        height = np.full(len(x0), area.height)
        self.batch.fill(painter, brush, x0, np.zeros(len(x0)), np.maximum(x1, x0), height)
        painter.setPen(QColor(self.scene.colours.faint))
        painter.setFont(ui_font(11))
        for left, right in zip(x0, x1, strict=True):
            if right - left > 70:
                painter.drawText(QRectF(left, 0, right - left, area.height), Qt.AlignmentFlag.AlignCenter, "no data")

    def _purposes(self, painter: QPainter, area: Area, times: Array, ends: Array, values: Array, known: Array) -> None:
        if not len(times):
            return
        tops = np.cumsum(values, axis=1, dtype=np.float64)
        x0 = np.clip(np.round(area.x(times)), -1, area.width + 1)
        x1 = np.clip(np.round(area.x(ends)), -1, area.width + 1)
        for index, name in enumerate(PURPOSES):
            upper = self._y(area, tops[:, index])
            lower = self._y(area, tops[:, index - 1]) if index else np.full(len(upper), area.height)
            drawn = known & (lower > upper)
            if not drawn.any():
                continue
            edge = np.empty(len(upper), dtype=bool)
            edge[0] = True
            edge[1:] = (upper[1:] != upper[:-1]) | (lower[1:] != lower[:-1]) | (drawn[1:] != drawn[:-1])
            first = np.flatnonzero(edge)
            last = np.append(first[1:], len(upper)) - 1
            keep = drawn[first]
            first, last = first[keep], last[keep]
            left, right = x0[first], np.maximum(x1[last], x0[first] + 1)
            self.batch.fill(painter, QColor(self.scene.colours.purpose(name)), left, upper[first], right, lower[first])

    def _band(
        self, painter: QPainter, area: Area, bands: Bands, level: Levels, brush: QBrush, *, of_pool: bool = False
    ) -> None:
        """A reading on top of what the engine holds, with an edge wherever either of them changes. ``of_pool``: the
        reading includes what is in use."""
        edges = np.unique(np.concatenate([level.times, bands.starts, bands.stops]))
        edges = edges[edges <= bands.stops[-1]]
        amount, covered = bands.at(edges)
        base = level.at(edges)
        top = level.with_pool(edges, amount) if of_pool else base + amount
        x0 = np.clip(np.round(area.x(edges)), 0, area.width + 1)
        x1 = np.append(x0[1:], np.clip(np.round(area.x(bands.stops[-1:])), 0, area.width + 1))
        lower, upper = self._y(area, base), self._y(area, top)
        keep = covered & (x1 > x0) & (upper < lower)
        self.batch.fill(painter, brush, x0[keep], upper[keep], x1[keep], lower[keep])

    def _plan(self, painter: QPainter, area: Area) -> None:
        """What all workers together are planned to need; said at the right end where the capacity is said close by."""
        plan = self.scene.plan
        if not plan or plan > self._scale_end:
            return
        y = float(self._y(area, np.float64(plan)))
        painter.setPen(dashed(self.scene.colours.muted))
        painter.drawLine(QPointF(0, y), QPointF(area.width, y))
        if area.height < _LEAST_FOR_PLAN:
            return  # the words would lie over all there is; they stand beside the device too
        painter.setFont(ui_font(11))
        text = f"plan: all workers at once {words.size(plan)}"
        capacity = self.scene.capacity or 0
        above = float(self._y(area, np.float64(capacity))) if capacity <= self._scale_end else 0.0
        is_close = plan <= capacity and y - above < 36  # what is said of the capacity stands there, at the left
        left = area.width - QFontMetricsF(painter.font()).horizontalAdvance(text) - 8 if is_close else 6.0
        self._say(painter, QPointF(left, y - 4 if y > 16 and not is_close else y + 14), text)

    def _capacity(self, painter: QPainter, area: Area, capacity: int | None, others: int) -> None:
        """``others``: bytes of other processes, where they are not drawn."""
        if not capacity:
            return
        colours = self.scene.colours
        painter.setFont(ui_font(11))
        text = f"capacity {words.size(capacity)}"
        y = float(self._y(area, np.float64(capacity)))
        base, left = y - 4 if y > 16 else y + 14, 6.0
        if capacity > self._scale_end:  # above the break of the axis
            text += f", other processes {words.size(others)}" if others else ""
            text += ", above the break: not to scale"
            y, base = 2.0, 14.0
            left = self._free_of_flags(area, QFontMetricsF(painter.font()).horizontalAdvance(text))
            x = np.arange(0.0, area.width + 6, 6.0)
            height = np.where(np.arange(len(x)) % 2, 18.5, 22.5)
            painter.setPen(QPen(QColor(colours.faint), 1))
            painter.drawPolyline(QPolygonF([QPointF(a, b) for a, b in zip(x, height, strict=True)]))
        painter.setPen(QPen(QColor(colours.bad), 1.5))
        painter.drawLine(QPointF(0, y), QPointF(area.width, y))
        self._say(painter, QPointF(left, base), text)

    def _free_of_flags(self, area: Area, wide: float) -> float:
        """Where a text of that width begins so that it meets no flag of an incident: at the left, at the right, else in
        the widest stretch between two of them, if that is enough."""
        flags = sorted(self.incidents_at(area))
        begins = [6.0, *(x + FLAG_WIDTH + 6 for x in flags)]
        ends = [*(x - 6 for x in flags), area.width - 6]
        room = [end - begin for begin, end in zip(begins, ends, strict=True)]
        if room[0] >= wide:
            return 6.0
        if room[-1] >= wide:
            return area.width - 6 - wide
        widest = int(np.argmax(room))
        return begins[widest] if room[widest] >= wide else 6.0

    def _say(self, painter: QPainter, base: QPointF, text: str) -> None:
        """Once the lines are painted."""
        self._said.append((base, text, painter.pen().color()))

    def describe(self, position: QPointF, area: Area) -> str | None:
        timeline = self.scene.timeline
        if timeline is None:
            return None
        time_ns = area.start_ns + round(position.x() * area.pixel_ns)
        if time_ns > self.scene.known_ns:
            return None
        held = timeline.memory.at(time_ns)
        colours = self.scene.colours
        clock = words.clock(time_ns + self.scene.session.wall_offset_ns)
        if held is None:
            return tooltip(clock, [("no data", "")])
        pairs = [(swatch(colours.purpose(name), name), words.size(size)) for name, size in reversed(held.items())]
        together = sum(held.values())
        reserved = _reading(timeline, "memory_reserved", time_ns)
        if reserved is not None:
            kept = max(0.0, reserved - (together - held.get("context", 0)))
            pairs.insert(0, (swatch(colours.pool, "kept by the pool, not in use"), words.size(kept)))
        others = _reading(timeline, "memory_other", time_ns)
        if others is not None:
            pairs.insert(0, (swatch(colours.purpose("processes"), "other processes"), words.size(others)))
        pairs.append(("the engine together", words.size_of(together, self.scene.capacity)))
        return tooltip(clock, pairs)

    def columns(self) -> Sequence[str]:
        return ("Time", *(f"{PURPOSES[i]}, bytes" for i in self._held()), "Together, bytes")

    def _held(self) -> list[int]:
        """The purposes that this device has ever held, as columns of the series."""
        timeline = self.scene.timeline
        return [int(i) for i in np.flatnonzero(timeline.memory.seen)] if timeline else []

    def rows(self, limit: int) -> list[Row]:
        timeline = self.scene.timeline
        if timeline is None:
            return []
        end = min(self.scene.known_ns, self.scene.end_ns)
        times, values, known = timeline.memory.steps(self.scene.start_ns, end, 1.0)
        found: list[Row] = []
        shown = self._held()
        for time_ns, row, seen in list(zip(times, values, known, strict=True))[-limit:]:
            moment = words.clock(int(time_ns) + self.scene.session.wall_offset_ns)
            if seen:
                found.append((moment, *(int(row[i]) for i in shown), int(row.sum())))
            else:
                found.append((moment, *([words.UNKNOWN] * (len(shown) + 1))))
        return found


def _reading(timeline: DeviceTimeline, name: str, time_ns: int) -> float | None:
    _, stops, values = timeline.samples.steps(name, time_ns, time_ns + 1)
    return float(values[-1]) if len(values) and stops[-1] >= time_ns else None
