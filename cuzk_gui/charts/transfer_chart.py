"""Transfers: rate over time, up above the line, down below it, page-locked and pageable apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import QPointF
from PySide6.QtGui import QColor, QPainter, QPen

from cuzk_engine.events import Lane
from cuzk_gui.charts.chart import Chart, LegendEntry, Row, tooltip
from cuzk_gui.charts.paint import Area, bar_edges
from cuzk_gui.charts.scene import Scene
from cuzk_gui.models import words
from cuzk_gui.models.columns import Array, Columns
from cuzk_gui.models.groups import Group
from cuzk_gui.models.session import DeviceTimeline
from cuzk_gui.models.tracks import EXACT_LIMIT
from cuzk_gui.models.view import nice_step

_SHORTEST_NS = 1000
_LANES = ((Lane.H2D.value, 1.0), (Lane.D2H.value, -1.0))
_COUNTERS = (("pcie_rx", 1.0, "received"), ("pcie_tx", -1.0, "sent"))  # by the device
_DRAWN = (Group.UP_PAGEABLE, Group.UP_PINNED, Group.DOWN)


class TransferChart(Chart):
    title = "Transfers"

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._up = self._down = 1e9

    def note(self) -> str:
        return "GB/s"

    def legend(self) -> Sequence[LegendEntry]:
        groups = self.scene.colours.groups
        spans = (
            ("up, page-locked", groups[Group.UP_PINNED]),
            ("up, pageable", groups[Group.UP_PAGEABLE]),
            ("down", groups[Group.DOWN]),
        )
        return (*spans, ("PCIe counters", self.scene.colours.muted)) if self._counted() else spans

    def _counted(self) -> bool:
        timeline = self.scene.timeline
        return timeline is not None and any(timeline.samples.ever(name) for name, _, _ in _COUNTERS)

    def paint_content(self, painter: QPainter, area: Area) -> None:
        timeline = self.scene.timeline
        if timeline is None or not (any(lane in timeline.tracks for lane, _ in _LANES) or self._counted()):
            self.set_ticks([], -1.0, 1.0)
            self.say_empty(painter, area)
            return
        bars = [(sign, *self._bars(lane, area)) for lane, sign in _LANES]
        counters = self._counters(timeline, area)
        highest = [float(rate.max()) if len(rate) else 0.0 for _, _, _, rate, _ in bars]
        for sign, _, _, rate in counters:
            side = 0 if sign > 0 else 1
            highest[side] = max(highest[side], float(rate.max()) if len(rate) else 0.0)
        self._scale(*highest)
        zero = self._y(area, np.float64(0))
        painter.setPen(QPen(QColor(self.scene.colours.grid), 1))
        for value, _ in self._tick_values:
            y = float(self._y(area, np.float64(value)))
            painter.drawLine(QPointF(0, y), QPointF(area.width, y))
        for sign, start, end, rate, group in bars:
            if not len(start):
                continue
            x0, x1 = bar_edges(area.x(start), area.x(end), area.width)
            tip = self._y(area, sign * rate)
            tip = np.minimum(tip, zero - 2) if sign > 0 else np.maximum(tip, zero + 2)
            for kind in np.unique(group):
                chosen = group == kind
                y0 = tip[chosen] if sign > 0 else np.full(int(chosen.sum()), zero)
                y1 = np.full(int(chosen.sum()), zero) if sign > 0 else tip[chosen]
                colour = QColor(self.scene.colours.groups[Group(int(kind))])
                self.batch.fill(painter, colour, x0[chosen], y0, x1[chosen], y1)
        self._draw_counters(painter, area, counters)
        painter.setPen(QPen(QColor(self.scene.colours.faint), 1))
        painter.drawLine(QPointF(0, float(zero)), QPointF(area.width, float(zero)))

    def _counters(self, timeline: DeviceTimeline, area: Area) -> list[tuple[float, Array, Array, Array]]:
        """(sign, starts, ends, bytes a second) of what the bus counted: means since the reading before."""
        end_ns = min(self.scene.known_ns, area.start_ns + area.span_ns)
        return [(sign, *timeline.samples.averages(name, area.start_ns, end_ns)) for name, sign, _ in _COUNTERS]

    def _draw_counters(
        self, painter: QPainter, area: Area, counters: Sequence[tuple[float, Array, Array, Array]]
    ) -> None:
        """As outlines over the copies, since both are the same bytes; a hole where nothing was read."""
        colour = QColor(self.scene.colours.muted)
        for sign, start, end, rate in counters:
            if not len(start):
                continue
            x0, x1 = np.round(area.x(start)), np.round(area.x(end))
            y = self._y(area, sign * rate)
            self.batch.fill(painter, colour, x0, y, np.maximum(x1, x0 + 1), y + 1)
            joined = np.flatnonzero(start[1:] == end[:-1])
            x, low, high = x0[joined + 1], np.minimum(y[joined], y[joined + 1]), np.maximum(y[joined], y[joined + 1])
            self.batch.fill(painter, colour, x, low, x + 1, high + 1)

    def _bars(self, lane: str, area: Area) -> tuple[Array, Array, Array, Array]:
        """(start, end, bytes a second, group): exact spans, or averages over buckets where there are too many."""
        timeline = self.scene.timeline
        track = timeline.tracks.get(lane) if timeline else None
        nothing = np.zeros(0)
        if track is None:
            return nothing, nothing, nothing, nothing
        end_ns = area.start_ns + area.span_ns
        part = track.window(area.start_ns, end_ns)
        exact = track.exact_covers(area.start_ns) and part.stop - part.start <= EXACT_LIMIT
        if exact and not track.crowded(part, area.pixel_ns, area.width):
            start, end = track.rows["start"][part], track.rows["end"][part]
            rate = track.rows["bytes"][part] * 1e9 / np.maximum(end - start, _SHORTEST_NS)
            return start, end, rate, track.rows["group"][part]
        level = track.level_for(area.start_ns, area.pixel_ns)
        starts, _, sizes = level.view(area.start_ns, end_ns)
        found = [(starts[sizes[:, g] > 0], sizes[sizes[:, g] > 0, g], g) for g in _DRAWN]
        start = np.concatenate([s for s, _, _ in found])
        rate = np.concatenate([b for _, b, _ in found]) * (1e9 / level.width)
        group = np.concatenate([np.full(len(s), g) for s, _, g in found])
        return start, start + level.width, rate, group

    def _scale(self, up: float, down: float) -> None:
        if up or down > self._down:  # without an upload in view the scale stays
            self._up = max(up * 1.1, down * 0.3, 1e6)
            self._down = max(down * 1.1, self._up * 0.3)
        step = nice_step((self._up + self._down) / 1e9, 4) * 1e9
        high, low = int(self._up / step), int(self._down / step)
        self._tick_values = [(i * step, f"{abs(i * step) / 1e9:g}") for i in range(-low, high + 1)]
        self.set_ticks(self._tick_values, -self._down, self._up)

    def _y(self, area: Area, rate: Array | np.float64) -> Array:
        return np.round((self._up - rate) * (area.height / (self._up + self._down)))

    def describe(self, position: QPointF, area: Area) -> str | None:
        timeline = self.scene.timeline
        if timeline is None:
            return None
        up = position.y() <= float(self._y(area, np.float64(0)))
        track = timeline.tracks.get(Lane.H2D.value if up else Lane.D2H.value)
        time_ns = area.start_ns + round(position.x() * area.pixel_ns)
        index = track.at(time_ns, round(3 * area.pixel_ns)) if track else None
        if track is None or index is None:
            return self._describe_counters(timeline, time_ns, area)
        return span_tooltip(self, track.rows, index)

    def _describe_counters(self, timeline: DeviceTimeline, time_ns: int, area: Area) -> str | None:
        if not self._counted() or time_ns > self.scene.known_ns:
            return None
        pairs = []
        for name, _, direction in _COUNTERS:
            start, end, rate = timeline.samples.averages(name, time_ns, time_ns + 1)
            there = len(rate) and int(start[0]) <= time_ns < int(end[0])
            pairs.append((direction, words.rate(float(rate[0])) if there else "not read"))
        return tooltip("PCIe counters of the device", pairs)

    def columns(self) -> Sequence[str]:
        return ("Time", "Direction", "What", "Duration, ms", "Bytes", "GB/s", "Host memory", "Job", "Worker")

    def rows(self, limit: int) -> list[Row]:
        timeline = self.scene.timeline
        session = self.scene.session
        found: list[tuple[int, Row]] = []
        for lane, sign in _LANES:
            track = timeline.tracks.get(lane) if timeline else None
            if track is None:
                continue
            part = track.window(self.scene.start_ns, self.scene.end_ns)
            rows = track.rows
            for i in range(max(part.start, part.stop - limit), part.stop):
                start, length = int(rows["start"][i]), int(rows["end"][i] - rows["start"][i])
                size = int(rows["bytes"][i])
                row: Row = (
                    words.clock(start + session.wall_offset_ns),
                    "up" if sign > 0 else "down",
                    words.kind(session.names.kinds.text(int(rows["kind"][i]))),
                    round(length / 1e6, 4),
                    size,
                    round(size / max(length, _SHORTEST_NS), 4),
                    {1: "page-locked", 0: "pageable"}.get(int(rows["pinned"][i]), words.UNKNOWN),
                    words.plain(session.names.jobs.text(int(rows["job"][i])), 60),
                    int(rows["worker"][i]),
                )
                found.append((start, row))
        found.sort(key=lambda item: item[0])
        return [row for _, row in found[-limit:]]


def span_tooltip(chart: Chart, rows: Columns, index: int) -> str:
    """Kind, duration, bytes, rate, job, worker of a span."""
    session = chart.scene.session
    start, end, size = int(rows["start"][index]), int(rows["end"][index]), int(rows["bytes"][index])
    pairs = [("duration", words.duration(end - start)), ("begun", words.clock(start + session.wall_offset_ns))]
    if size:
        pairs.append(("bytes", words.size(size)))
    pinned = int(rows["pinned"][index])
    if pinned >= 0:
        pairs.append(("rate", words.rate(size * 1e9 / max(end - start, _SHORTEST_NS))))
        pairs.append(("host memory", "page-locked" if pinned else "pageable"))
    job_id = session.names.jobs.text(int(rows["job"][index]))
    if job_id:
        job = session.jobs.get(job_id)
        pairs.append(("job", words.plain(job.label or job.circuit_name, 40) if job else words.plain(job_id, 12)))
    if int(rows["partition"][index]) > 0:
        pairs.append(("partition", str(int(rows["partition"][index]) + 1)))
    if int(rows["worker"][index]) >= 0:
        pairs.append(("worker", str(int(rows["worker"][index]))))
    return tooltip(words.kind(session.names.kinds.text(int(rows["kind"][index]))), pairs)
