"""The order in which Tab goes through widgets that are made at different times."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QWidget


def tab_through(areas: Iterable[QWidget]) -> None:
    """Area after area, in each of them from top to bottom and from left to right, as it is laid out now."""
    found = [widget for area in areas for widget in _in_order(area)]
    for before, after in pairwise(found):
        QWidget.setTabOrder(before, after)


def _in_order(area: QWidget) -> list[QWidget]:
    def place(widget: QWidget) -> tuple[int, int]:
        corner = widget.mapTo(area, QPoint(0, 0))
        return corner.y(), corner.x()

    inside = [w for w in area.findChildren(QWidget) if w.focusPolicy() & Qt.FocusPolicy.TabFocus]
    return sorted(inside, key=place)
