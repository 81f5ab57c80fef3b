"""Idle time on the lane of kernels: a quiet tint for who is to blame, hatched where nothing explains it."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QFontMetricsF, QPainter, QPen

from cuzk_gui.charts.chart import tooltip
from cuzk_gui.charts.paint import Area, LabelPen, RectBatch
from cuzk_gui.charts.scene import Scene
from cuzk_gui.models import causes, words
from cuzk_gui.models.causes import CAUSES, Blame
from cuzk_gui.models.columns import Array
from cuzk_gui.models.gaps import GapTrack
from cuzk_gui.models.tracks import EXACT_LIMIT, SpanTrack

_BLAME = np.array([int(causes.blame(cause)) for cause in CAUSES], dtype=np.int8)
_MOST_LABELS = 60


class GapLayer:
    """Draws the gaps of a device into a row of the lanes."""

    def __init__(self, scene: Scene, batch: RectBatch, pens: LabelPen) -> None:
        self._scene = scene
        self._batch = batch
        self._pens = pens

    def paint(self, painter: QPainter, area: Area, gaps: SpanTrack, y0: float, y1: float) -> None:
        part = gaps.window(area.start_ns, area.start_ns + area.span_ns)
        exact = gaps.exact_covers(area.start_ns) and part.stop - part.start <= EXACT_LIMIT
        if exact and not gaps.crowded(part, area.pixel_ns, area.width):
            self._exact(painter, area, gaps, part, y0, y1)
        else:
            self._coarse(painter, area, gaps, y0, y1)

    def _exact(self, painter: QPainter, area: Area, gaps: SpanTrack, part: slice, y0: float, y1: float) -> None:
        cause = gaps.rows["group"][part].astype(np.int64)
        x0 = np.clip(np.round(area.x(gaps.rows["start"][part])), 0, area.width)
        x1 = np.clip(np.round(area.x(gaps.rows["end"][part])), 0, area.width)
        chosen = self._chosen(cause)
        x1 = np.where(chosen, np.maximum(x1, x0 + 1), x1)  # what was asked for is never too short to be seen
        seen = x1 > x0
        for blame in Blame:
            drawn = seen & (_BLAME[cause] == blame) & ~chosen
            self._fill(painter, self._brush(blame), x0[drawn], x1[drawn], y0, y1)
        picked = seen & chosen
        if picked.any():
            self._fill(painter, self._picked_brush(), x0[picked], x1[picked], y0, y1)
            colour = QColor(self._scene.colours.warn)
            self._fill(painter, QBrush(colour), x0[picked], x1[picked], y1 - 2, y1)
        if y1 - y0 > 12:
            self._labels(painter, gaps, part, (x0, x1), (y0, y1), seen)

    def _labels(
        self,
        painter: QPainter,
        gaps: SpanTrack,
        part: slice,
        edges: tuple[Array, Array],
        rows_y: tuple[float, float],
        seen: Array,
    ) -> None:
        x0, x1 = edges
        metrics = QFontMetricsF(painter.font())
        colours = self._scene.colours
        for i in np.flatnonzero(seen & (x1 - x0 > 44))[-_MOST_LABELS:]:
            row = part.start + int(i)
            cause = CAUSES[int(gaps.rows["group"][row])]
            room = float(x1[i] - x0[i]) - 8
            name = causes.name(cause)
            length = words.duration(int(gaps.rows["end"][row] - gaps.rows["start"][row]))
            text = next(
                (t for t in (f"{name} {length}", name, length) if self._pens.width(metrics, t, "gap") <= room), ""
            )
            if text:
                quiet = causes.blame(cause) is Blame.NOBODY
                painter.setPen(QColor(colours.faint if quiet else colours.muted))
                box = QRectF(float(x0[i]), rows_y[0], room + 8, rows_y[1] - rows_y[0])
                painter.drawText(box, Qt.AlignmentFlag.AlignCenter, text)

    def _coarse(self, painter: QPainter, area: Area, gaps: SpanTrack, y0: float, y1: float) -> None:
        """Idle share of each bucket from the top of the row down, as the busy share stands on its bottom: what neither
        reaches was not judged."""
        level = gaps.level_for(area.start_ns, area.pixel_ns)
        starts, idle, _ = level.view(area.start_ns, area.start_ns + area.span_ns)
        if not len(starts):
            return
        x0 = np.round(area.x(starts))
        x1 = np.maximum(np.round(area.x(starts + level.width)), x0 + 1)
        share = np.minimum(idle[:, : len(CAUSES)] / level.width, 1.0)
        chosen = self._chosen(np.arange(len(CAUSES)))
        layers = [(share[:, chosen].sum(axis=1), self._picked_brush())] if chosen.any() else []
        layers += [(share[:, (b == _BLAME) & ~chosen].sum(axis=1), self._brush(b)) for b in Blame]
        top = np.full(len(starts), y0)
        for part, brush in layers:
            bottom = np.minimum(top + part * (y1 - y0), y1)
            drawn = bottom - top > 0.25
            self._batch.fill(painter, brush, x0[drawn], top[drawn], x1[drawn], bottom[drawn])
            top = bottom

    def _chosen(self, cause: Array) -> Array:
        if not self._scene.cause:
            return np.zeros(len(cause), dtype=bool)
        chosen: Array = cause == causes.number(self._scene.cause)
        return chosen

    def _brush(self, blame: Blame) -> QBrush:
        shown = Blame.NOBODY if self._scene.cause and blame is not Blame.UNEXPLAINED else blame
        return gap_brush(self._scene.colours.gaps[shown], shown)

    def _picked_brush(self) -> QBrush:
        colour = QColor(self._scene.colours.warn)
        colour.setAlphaF(0.45)
        return QBrush(colour)

    def _fill(self, painter: QPainter, brush: QBrush, x0: Array, x1: Array, y0: float, y1: float) -> None:
        if len(x0):
            self._batch.fill(painter, brush, x0, np.full(len(x0), y0), x1, np.full(len(x0), y1))


def gap_brush(colour: str, blame: Blame) -> QBrush:
    """Hatched where the cause is not known: a tint would claim one."""
    pattern = Qt.BrushStyle.BDiagPattern if blame is Blame.UNEXPLAINED else Qt.BrushStyle.SolidPattern
    return QBrush(QColor(colour), pattern)


def draw_swatch(painter: QPainter, scene_colours: dict[Blame, str], blame: Blame, border: str, box: QRectF) -> None:
    """The tint of a cause as a small square with an edge, so that quiet tints can be seen on any ground."""
    painter.setPen(QPen(QColor(border), 1))
    painter.setBrush(gap_brush(scene_colours[blame], blame))
    painter.drawRect(box)


def describe(scene: Scene, gaps: GapTrack, index: int) -> str:
    """Cause, duration, evidence of a gap."""
    rows = gaps.rows
    cause = CAUSES[int(rows["group"][index])]
    start, end = int(rows["start"][index]), int(rows["end"][index])
    pairs = [("no kernel for", words.duration(end - start))]
    pairs.append(("from", words.clock(start + scene.session.wall_offset_ns)))
    if int(rows["worker"][index]) >= 0:
        pairs.append(("worker", str(int(rows["worker"][index]))))
    evidence = words.plain(gaps.evidence(index), 300)
    return tooltip(f"Idle: {causes.name(cause)}", pairs, [t for t in (evidence, causes.explanation(cause)) if t])


def gap_at(gaps: SpanTrack, time_ns: int) -> int | None:
    """Index of the gap at a moment."""
    return gaps.at(time_ns, 0) if len(gaps.rows) else None
