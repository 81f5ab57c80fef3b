"""Kernels and workers: a row for the lock, for kernels, for each copy direction and for each worker's host thread."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen

from cuzk_engine.events import Lane
from cuzk_gui.charts import gaps as gap_words
from cuzk_gui.charts.chart import Chart, LegendEntry, Row
from cuzk_gui.charts.gaps import GapLayer
from cuzk_gui.charts.paint import Area, bar_edges
from cuzk_gui.charts.scene import Scene
from cuzk_gui.charts.transfer_chart import span_tooltip
from cuzk_gui.models import causes, words
from cuzk_gui.models.causes import CAUSES, Blame
from cuzk_gui.models.groups import LEGEND, Group
from cuzk_gui.models.session import DeviceTimeline
from cuzk_gui.models.tracks import EXACT_LIMIT, SpanTrack
from cuzk_gui.theme import ui_font

_HEIGHTS = {"lock": 0.9, "compute": 1.6, "h2d": 0.85, "d2h": 0.85}
_HOST_HEIGHT = 1.25
_MOST_LABELS = 250
_LABEL_ROOM = 20.0  # pixels below which a bar is not looked at for a label


class LanesChart(Chart):
    title = "Kernels and workers"
    cause_chosen = Signal(str)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene, bottom_axis=True)
        self._gap_layer = GapLayer(scene, self.batch, self.pens)
        self._lanes: list[tuple[str, float, float]] = []  # (lane, top, bottom) in shares of the height

    def note(self) -> str:
        view = self.scene.view
        shown = words.duration(view.width * 1e9)
        return f"{shown} shown · {words.plain(self.scene.device, 24)}" if self.scene.device else f"{shown} shown"

    def legend(self) -> Sequence[LegendEntry]:
        colours = self.scene.colours
        kinds = tuple((name, colours.groups[group]) for group, name in LEGEND)
        return (*kinds, ("idle", colours.gaps[Blame.SETTINGS])) if self._has_gaps() else kinds

    def _has_gaps(self) -> bool:
        timeline = self.scene.timeline
        return timeline is not None and len(timeline.gaps.rows) > 0

    def paint_content(self, painter: QPainter, area: Area) -> None:
        timeline = self.scene.timeline
        self._layout(timeline)
        painter.setPen(QPen(QColor(self.scene.colours.grid), 1))
        for _, _, bottom in self._lanes:
            y = min(round(bottom * area.height), area.height - 1)
            painter.drawLine(QPointF(0, y), QPointF(area.width, y))
        if timeline is None or not timeline.tracks:
            self.say_empty(painter, area)
            return
        painter.setFont(ui_font(10))
        labels = _MOST_LABELS
        for lane, top, bottom in self._lanes:
            track = timeline.tracks.get(lane)
            if track is None:
                continue
            y0, y1 = round(top * area.height) + 3.0, round(bottom * area.height) - 3.0
            if lane == Lane.COMPUTE:
                self._gap_layer.paint(painter, area, timeline.gaps, y0, y1)
            part = track.window(area.start_ns, area.start_ns + area.span_ns)
            exact = track.exact_covers(area.start_ns) and part.stop - part.start <= EXACT_LIMIT
            if exact and not track.crowded(part, area.pixel_ns, area.width):
                labels -= self._exact(painter, area, track, part, lane, y0, y1, labels)
            else:
                self._coarse(painter, area, track, y0, y1)

    def _layout(self, timeline: DeviceTimeline | None) -> None:
        described = self.scene.session.described.get(self.scene.device)
        workers = described.workers if described else 0
        names = timeline.lanes(workers) if timeline else ["lock", "compute", "h2d", "d2h"]
        units = [_HEIGHTS.get(name, _HOST_HEIGHT) for name in names]
        edges = np.concatenate([[0.0], np.cumsum(units)]) / sum(units)
        self._lanes = [(name, float(edges[i]), float(edges[i + 1])) for i, name in enumerate(names)]
        ticks = [(1.0 - (top + bottom) / 2, words.lane(name)) for name, top, bottom in self._lanes]
        self.set_ticks(ticks, 0.0, 1.0)

    def _exact(
        self, painter: QPainter, area: Area, track: SpanTrack, part: slice, lane: str, y0: float, y1: float, labels: int
    ) -> int:
        rows = track.rows
        start, end, group = rows["start"][part], rows["end"][part], rows["group"][part]
        x0, x1 = bar_edges(area.x(start), area.x(end), area.width)
        inside = (x1 > 0) & (x0 < area.width)
        repeated = np.zeros(len(x0), dtype=bool)  # the same pixel in the same colour
        repeated[1:] = (x0[1:] == x0[:-1]) & (x1[1:] == x1[:-1]) & (group[1:] == group[:-1])
        drawn = inside & ~repeated
        for kind in np.unique(group[drawn]):
            chosen = drawn & (group == kind)
            count = int(chosen.sum())
            colour = QColor(self.scene.colours.groups[Group(int(kind))])
            inset = 4.0 if kind == Group.WAIT and y1 - y0 > 14 else 0.0
            self.batch.fill(
                painter, colour, x0[chosen], np.full(count, y0 + inset), x1[chosen], np.full(count, y1 - inset)
            )
        if y1 - y0 < 11:
            return 0
        return self._labels(painter, track, part, lane, (x0, x1, inside), (y0, y1), area.width, labels)

    def _labels(
        self,
        painter: QPainter,
        track: SpanTrack,
        part: slice,
        lane: str,
        bars: tuple[np.ndarray, np.ndarray, np.ndarray],
        rows_y: tuple[float, float],
        width: float,
        most: int,
    ) -> int:
        x0, x1, inside = bars
        left, right = np.maximum(x0, 0), np.minimum(x1, width)
        wide = np.flatnonzero(inside & (right - left > _LABEL_ROOM))[-max(most, 0) :] if most > 0 else ()
        metrics = QFontMetricsF(painter.font())
        kinds, colours = self.scene.session.names.kinds, self.scene.colours
        written = 0
        for i in wide:
            row = part.start + int(i)
            group = Group(int(track.rows["group"][row]))
            kind = kinds.text(int(track.rows["kind"][row]))
            text = f"worker {int(track.rows['worker'][row])}" if kind == "lock.held" else words.kind_short(kind)
            room = float(right[i] - left[i])
            if self.pens.width(metrics, text, "bar") > room - 8:
                if kind != "lock.held":
                    continue
                text = str(int(track.rows["worker"][row]))
            painter.setPen(QColor(colours.on_bar(colours.groups[group])))
            painter.drawText(
                QRectF(left[i], rows_y[0], room, rows_y[1] - rows_y[0]), Qt.AlignmentFlag.AlignCenter, text
            )
            written += 1
        return written

    def _coarse(self, painter: QPainter, area: Area, track: SpanTrack, y0: float, y1: float) -> None:
        """Busy share of each bucket as the height of its bar, split by group."""
        level = track.level_for(area.start_ns, area.pixel_ns)
        starts, busy, _ = level.view(area.start_ns, area.start_ns + area.span_ns)
        if not len(starts):
            return
        x0 = np.round(area.x(starts))
        x1 = np.maximum(np.round(area.x(starts + level.width)), x0 + 1)
        share = busy / level.width
        share = share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)
        tops = np.cumsum(share, axis=1)
        height = y1 - y0
        for group in Group:
            drawn = share[:, group] > 0
            if not drawn.any():
                continue
            upper, lower = (np.round(y1 - top[drawn, group] * height) for top in (tops, tops - share))
            upper = np.minimum(upper, lower - 1)  # what is there is never too short to be seen
            colour = QColor(self.scene.colours.groups[group])
            self.batch.fill(painter, colour, x0[drawn], upper, x1[drawn], lower)

    def lane_at(self, y: float, height: float) -> str | None:
        return next((lane for lane, top, bottom in self._lanes if top * height <= y < bottom * height), None)

    def describe(self, position: QPointF, area: Area) -> str | None:
        timeline = self.scene.timeline
        lane = self.lane_at(position.y(), area.height)
        track = timeline.tracks.get(lane) if timeline and lane else None
        if track is None:
            return None
        time_ns = area.start_ns + round(position.x() * area.pixel_ns)
        if (gap := self._gap_at(lane, track, time_ns)) is not None and timeline is not None:
            return gap_words.describe(self.scene, timeline.gaps, gap)
        index = track.at(time_ns, round(2 * area.pixel_ns))
        return span_tooltip(self, track.rows, index) if index is not None else None

    def _gap_at(self, lane: str | None, track: SpanTrack, time_ns: int) -> int | None:
        """The gap under the pointer, where no kernel is right there."""
        timeline = self.scene.timeline
        if lane != Lane.COMPUTE or timeline is None or track.at(time_ns, 0) is not None:
            return None
        return gap_words.gap_at(timeline.gaps, time_ns)

    def clicked(self, position: QPointF, area: Area) -> bool:
        """A click on a gap singles its cause out, or ends that."""
        timeline = self.scene.timeline
        lane = self.lane_at(position.y(), area.height)
        track = timeline.tracks.get(lane) if timeline and lane else None
        if track is None or timeline is None:
            return False
        gap = self._gap_at(lane, track, area.start_ns + round(position.x() * area.pixel_ns))
        if gap is None:
            return False
        cause = CAUSES[int(timeline.gaps.rows["group"][gap])]
        self.cause_chosen.emit("" if cause == self.scene.cause else cause)
        return True

    def gap_rows(self, limit: int) -> list[Row]:
        """The gaps of the shown stretch as table rows."""
        timeline, session = self.scene.timeline, self.scene.session
        if timeline is None:
            return []
        gaps = timeline.gaps
        rows, part = gaps.rows, gaps.window(self.scene.start_ns, self.scene.end_ns)
        return [
            (
                words.clock(int(rows["start"][i]) + session.wall_offset_ns),
                round(int(rows["end"][i] - rows["start"][i]) / 1e6, 4),
                causes.name(CAUSES[int(rows["group"][i])]),
                words.plain(gaps.evidence(i)),
                int(rows["worker"][i]),
            )
            for i in range(max(part.start, part.stop - limit), part.stop)
        ]

    def columns(self) -> Sequence[str]:
        return ("Begun", "Lane", "What", "Duration, ms", "Bytes", "Job", "Partition", "Worker")

    def rows(self, limit: int) -> list[Row]:
        timeline, session = self.scene.timeline, self.scene.session
        found: list[tuple[int, Row]] = []
        for lane in timeline.lanes() if timeline else ():
            track = timeline.tracks.get(lane) if timeline else None
            if track is None:
                continue
            part = track.window(self.scene.start_ns, self.scene.end_ns)
            rows = track.rows
            for i in range(max(part.start, part.stop - limit), part.stop):
                start = int(rows["start"][i])
                row: Row = (
                    words.clock(start + session.wall_offset_ns),
                    words.lane(lane),
                    words.kind(session.names.kinds.text(int(rows["kind"][i]))),
                    round(int(rows["end"][i] - start) / 1e6, 4),
                    int(rows["bytes"][i]),
                    words.plain(session.names.jobs.text(int(rows["job"][i])), 60),
                    int(rows["partition"][i]),
                    int(rows["worker"][i]),
                )
                found.append((start, row))
        found.sort(key=lambda item: item[0])
        return [row for _, row in found[-limit:]]
