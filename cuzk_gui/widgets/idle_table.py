"""The last minute of a device: kernels, how long it was held, and idle time by cause."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from cuzk_gui.charts.gaps import draw_swatch
from cuzk_gui.models import causes, words
from cuzk_gui.models.causes import CAUSES, Blame
from cuzk_gui.models.loads import Load
from cuzk_gui.theme import Theme, ui_font
from cuzk_gui.widgets.controls import ElidedLabel, label

_MS_WIDTH, _SHARE_WIDTH, _BAR_WIDTH = 74, 58, 40
_KERNELS, _HELD, _REST = "kernels running", "device held", "not judged"


@dataclass(frozen=True, slots=True)
class _Shown:
    name: str
    share: float
    ns: int
    blame: Blame | None  # None: not idle time
    tip: str


def _time(ns: int) -> str:
    """Milliseconds, of long stretches seconds."""
    return f"{ns / 1e6:,.0f} ms" if ns < 100e9 else f"{ns / 1e9:,.0f} s"


class LoadRow(QAbstractButton):
    """A name, a bar, milliseconds and a share. Checkable rows single a cause out in the charts."""

    def __init__(self, theme: Theme, *, checkable: bool) -> None:
        super().__init__()
        self._theme = theme
        self._shown = _Shown("", 0.0, 0, None, "")
        self.setCheckable(checkable)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus if checkable else Qt.FocusPolicy.NoFocus)
        if checkable:
            self.setCursor(Qt.CursorShape.PointingHandCursor)

    @property
    def text_line(self) -> str:
        return self.accessibleName()

    def show_row(self, shown: _Shown) -> None:
        if shown == self._shown:
            return
        self._shown = shown
        self.setAccessibleName(f"{shown.name}: {_time(shown.ns)}, {shown.share * 100:.1f} %")
        self.setToolTip(f"<p>{shown.tip}</p>")
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(200, 19)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        colours, shown, width = self._theme.colours, self._shown, self.width()
        if self.isChecked() or self.hasFocus() or (self.isCheckable() and self.underMouse()):
            painter.setPen(QColor(colours.accent) if self.hasFocus() else Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colours.selected if self.isChecked() else colours.control))
            painter.drawRoundedRect(QRectF(0.5, 0.5, width - 1, self.height() - 1), 3, 3)
        left = 4.0
        if shown.blame is not None:
            draw_swatch(painter, colours.gaps, shown.blame, colours.faint, QRectF(left + 0.5, 5.5, 8, 8))
            left += 15
        painter.setFont(ui_font(12))
        metrics = QFontMetricsF(painter.font())
        right = width - 2.0 - _SHARE_WIDTH - _MS_WIDTH
        bar_width = _BAR_WIDTH if right - left > 150 else 0
        name = metrics.elidedText(shown.name, Qt.TextElideMode.ElideRight, right - left - bar_width - 8)
        painter.setPen(QColor(colours.muted if shown.blame is not None else colours.text))
        painter.drawText(QRectF(left, 0, right - left, self.height()), Qt.AlignmentFlag.AlignVCenter, name)
        if bar_width:
            track = QRectF(right - bar_width, self.height() / 2 - 3, bar_width, 6)
            painter.fillRect(track, QColor(colours.control))
            colour = colours.good if shown.blame is None else colours.faint
            painter.fillRect(
                QRectF(track.left(), track.top(), bar_width * min(shown.share, 1.0), track.height()), QColor(colour)
            )
        painter.setPen(QColor(colours.text))
        at_right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        painter.drawText(QRectF(right, 0, _MS_WIDTH, self.height()), at_right, _time(shown.ns))
        painter.drawText(
            QRectF(right + _MS_WIDTH, 0, _SHARE_WIDTH, self.height()), at_right, f"{shown.share * 100:.1f} %"
        )


class IdleTable(QWidget):
    """``cause_chosen``: gaps of a cause shall stand out, "" for none."""

    cause_chosen = Signal(str)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._note = ElidedLabel(natural=True)
        self._note.setProperty("role", "faint")
        header = QHBoxLayout()
        header.setSpacing(8)
        self._title = label("Idle time", "title")
        header.addWidget(self._title)
        header.addStretch(1)
        header.addWidget(self._note)
        self._busy = {name: LoadRow(theme, checkable=False) for name in (_KERNELS, _HELD)}
        self.rows: dict[str, LoadRow] = {}
        self._rest = LoadRow(theme, checkable=False)
        self._empty = label("", "faint")
        self._empty.setWordWrap(True)
        self._lines = QVBoxLayout()
        self._lines.setSpacing(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(2)
        layout.addLayout(header)
        for row in self._busy.values():
            layout.addWidget(row)
        layout.addLayout(self._lines)
        layout.addWidget(self._rest)
        layout.addWidget(self._empty)
        self._order: list[str] = []

    @property
    def lines(self) -> list[str]:
        """What is shown, as text."""
        shown = [*self._busy.values(), *(self.rows[c] for c in self._order), self._rest]
        return [row.text_line for row in shown if not row.isHidden()]

    @property
    def empty_text(self) -> str:
        return self._empty.text() if not self._empty.isHidden() else ""

    @property
    def title(self) -> str:
        return self._title.text()

    def show_load(self, load: Load | None, device: str, cause: str, stretch: str) -> None:
        """``device``: which one it is, "" where there is one only; ``cause``: the one that is singled out;
        ``stretch``: the time that it is about, in words."""
        title = f"Idle time, {stretch}"
        if title != self._title.text():
            self._title.setText(title)
        nothing = load is None or load.kernels is None or load.measured <= 0
        for widget in (*self._busy.values(), self._rest):
            widget.setVisible(not nothing)
        self._empty.setVisible(nothing)
        if nothing or load is None:
            self._note.set_text("")
            self._empty.setText("No kernel was measured yet." if load is not None else "Nothing is measured.")
            self._arrange([])
            return
        which = f" · {words.plain(device, 16)}" if device else ""
        self._note.set_text(f"of {words.duration(load.measured)}{which}")
        self._show_busy(load)
        idle = sorted(load.idle, key=lambda i: (-round(load.share(i.ns) * 100), CAUSES.index(i.cause)))
        self._arrange([row.cause for row in idle])
        for row in idle:
            name = causes.name(row.cause)
            gaps = f" {words.count(row.gaps, 'gap')}." if row.gaps else ""
            tip = f"{causes.explanation(row.cause)}{gaps} A click makes them stand out."
            self.rows[row.cause].show_row(_Shown(name, load.share(row.ns), row.ns, causes.blame(row.cause), tip))
            self.rows[row.cause].setChecked(row.cause == cause)
        self._rest.setVisible(load.unexplained > load.measured // 1000)
        tip = "No kernel ran, and no cause was named: between two kernels, too short to be judged, or not judged yet."
        self._rest.show_row(_Shown(_REST, load.share(load.unexplained), load.unexplained, Blame.UNEXPLAINED, tip))

    def _show_busy(self, load: Load) -> None:
        kernels = load.kernels or 0
        copying = f" Copies ran without a kernel for {words.duration(load.copying)}." if load.copying else ""
        self._busy[_KERNELS].show_row(
            _Shown(_KERNELS, load.share(kernels), kernels, None, f"Kernels ran on the device.{copying}")
        )
        held = load.lock
        self._busy[_HELD].setVisible(held is not None)
        if held is not None:
            tip = "A worker held the device's lock. Held and yet no kernel: the difference to the line above."
            self._busy[_HELD].show_row(_Shown(_HELD, load.share(held), held, None, tip))

    def _arrange(self, order: list[str]) -> None:
        for cause in order:
            if cause not in self.rows:
                row = LoadRow(self._theme, checkable=True)
                row.clicked.connect(lambda on=False, cause=cause: self.cause_chosen.emit(cause if on else ""))
                self.rows[cause] = row
        if order == self._order:
            return
        for row in self.rows.values():
            self._lines.removeWidget(row)
            row.hide()
        for cause in order:
            self._lines.addWidget(self.rows[cause])
            self.rows[cause].show()
        self._order = order
