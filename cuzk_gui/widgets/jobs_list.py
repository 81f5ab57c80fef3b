"""Jobs: a list drawn from the model, however many there are."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, QPoint, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QAction, QColor, QFocusEvent, QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame, QListView, QMenu, QStyle, QStyledItemDelegate, QStyleOptionViewItem

from cuzk_engine.client import JobInfo, JobState
from cuzk_gui.models import jobs as model
from cuzk_gui.models import words
from cuzk_gui.theme import Theme, ui_font

Index = QModelIndex | QPersistentModelIndex
JOB_ROLE = Qt.ItemDataRole.UserRole
TEXT_ROLE = Qt.ItemDataRole.UserRole + 1
QUIET_ROLE = Qt.ItemDataRole.UserRole + 2


_PRIORITY_MARKS = {"low": "↓", "high": "↑", "critical": "⇈"}


class JobsModel(QAbstractListModel):
    """Mirrors a JobTable; ``refresh`` after the table or the clock has moved."""

    def __init__(self, table: model.JobTable) -> None:
        super().__init__()
        self._table = table
        self._order: list[str] = []

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008  Qt's own default
        return 0 if parent.isValid() else len(self._order)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        job = self.job(index.row())
        if job is None:
            return None
        if role == JOB_ROLE:
            return job
        if role == TEXT_ROLE:
            return self.text(job)
        if role == QUIET_ROLE:
            return model.quiet_ns(job, self.now()) > 0
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return f"{model.title(job)}, {model.state_of(job)}, {self.text(job)}"
        if role == Qt.ItemDataRole.ToolTipRole:
            return _tip(job)
        return None

    def text(self, job: JobInfo) -> str:
        """The right side of the job's line."""
        return model.progress_text(job, self.now(), self._table.place(job.id))

    def now(self) -> int:
        """Unix nanoseconds that durations count to."""
        return self._table.clock()

    def job(self, row: int) -> JobInfo | None:
        return self._table.get(self._order[row]) if 0 <= row < len(self._order) else None

    def row_of(self, job_id: str) -> int:
        try:
            return self._order.index(job_id)
        except ValueError:
            return -1

    def refresh(self) -> None:
        if self._order != self._table.order:
            kept = {i: self._order[i.row()] for i in self.persistentIndexList() if i.row() < len(self._order)}
            self.layoutAboutToBeChanged.emit()
            self._order = list(self._table.order)
            place = {job_id: row for row, job_id in enumerate(self._order)}
            for index, job_id in kept.items():
                row = place.get(job_id)
                self.changePersistentIndex(index, self.index(row) if row is not None else QModelIndex())
            self.layoutChanged.emit()
        elif self._order:
            self.dataChanged.emit(self.index(0), self.index(len(self._order) - 1))


def _tip(job: JobInfo) -> str:
    lines = [model.title(job), f"job {words.plain(job.id, 80)}"]
    if job.partitions > 1:
        lines.append(f"{job.partitions_done} of {job.partitions} partitions done")
    lines.append(f"priority {model.priority_of(job)}")
    if again := job.retried:
        lines.append(f"retried {again}")
    if job.error:
        lines.append(words.plain(job.error, 1000))
    return "\n".join(lines)


class _JobDelegate(QStyledItemDelegate):
    """Name on the left, phase or end on the right, a bar of the progress under them."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(100, 42)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        job: JobInfo | None = index.data(JOB_ROLE)
        if job is None:
            return
        colours = self._theme.colours
        rect = QRectF(option.rect).adjusted(2, 1, -2, -1)
        state = option.state
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if state & QStyle.StateFlag.State_Selected:
            painter.setPen(QColor(colours.accent) if state & QStyle.StateFlag.State_HasFocus else Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colours.control))
            painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), 5, 5)
        inner = rect.adjusted(6, 4, -6, -4)
        right = str(index.data(TEXT_ROLE))
        failed = job.state in (JobState.FAILED,)
        painter.setFont(ui_font(11.5))
        small = QFontMetricsF(painter.font())
        right = small.elidedText(right, Qt.TextElideMode.ElideRight, inner.width() * 0.62)
        right_width = small.horizontalAdvance(right)
        tone = colours.bad if failed else colours.warn if index.data(QUIET_ROLE) else colours.muted
        painter.setPen(QColor(tone))
        line = QRectF(inner.left(), inner.top(), inner.width(), 18)
        painter.drawText(line, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, right)
        mark = _PRIORITY_MARKS.get(model.priority_of(job), "")
        if mark:
            painter.setFont(ui_font(12.5, bold=True))
            painter.setPen(QColor(colours.accent))
            painter.drawText(line, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, mark)
            line.setLeft(line.left() + 18)
        painter.setFont(ui_font(12.5))
        name = QFontMetricsF(painter.font()).elidedText(
            model.title(job), Qt.TextElideMode.ElideRight, line.width() - right_width - 10
        )
        painter.setPen(QColor(colours.text))
        painter.drawText(line, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, name)
        track = QRectF(inner.left(), inner.top() + 23, inner.width(), 5)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(colours.border if state & QStyle.StateFlag.State_Selected else colours.control))
        painter.drawRoundedRect(track, 2.5, 2.5)
        share = model.fraction(job)
        if share > 0:
            bar = {JobState.COMPLETED: colours.good, JobState.FAILED: colours.bad}.get(job.state, colours.accent)
            if job.state == JobState.CANCELLED:
                bar = colours.faint
            painter.setBrush(QColor(bar))
            painter.drawRoundedRect(QRectF(track.left(), track.top(), max(track.width() * share, 5), 5), 2.5, 2.5)
        painter.restore()


class JobsList(QListView):
    """``chosen``: the selected job has changed ("" for none)."""

    chosen = Signal(str)
    cancel_asked = Signal(str)
    save_asked = Signal(str)
    hide_asked = Signal(str)

    def __init__(self, theme: Theme, table: model.JobTable) -> None:
        super().__init__()
        self._theme = theme
        self.none = "none yet: Ctrl+P hands one in"  # said where there is no job
        self.recorded = False  # nothing can be asked of these jobs
        self.jobs = JobsModel(table)
        self.setModel(self.jobs)
        self._delegate = _JobDelegate(theme)
        self.setItemDelegate(self._delegate)
        self.setUniformItemSizes(True)
        self.setMouseTracking(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName("Jobs")
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.customContextMenuRequested.connect(self._menu)
        self.selectionModel().currentChanged.connect(self._current_changed)
        self._selected = ""

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self.jobs.rowCount():
            painter = QPainter(self.viewport())
            painter.setPen(QColor(self._theme.colours.faint))
            painter.setFont(ui_font(11))
            area = self.viewport().rect().adjusted(8, 4, -8, 0)
            none = self.none
            painter.drawText(area, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop, none)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Qt makes the first row the current one; but who only comes by has chosen nothing."""
        had = self._selected
        super().focusInEvent(event)
        if not had and self._selected:
            self.setCurrentIndex(QModelIndex())

    @property
    def selected(self) -> str:
        return self._selected

    def select(self, job_id: str) -> None:
        row = self.jobs.row_of(job_id)
        if row >= 0:
            self.setCurrentIndex(self.jobs.index(row))

    def _current_changed(self, current: QModelIndex, _previous: QModelIndex) -> None:
        job = self.jobs.job(current.row()) if current.isValid() else None
        self._selected = job.id if job else ""
        self.chosen.emit(self._selected)

    def _menu(self, point: QPoint) -> None:
        job = self.jobs.job(self.indexAt(point).row())
        if job is None:
            return
        menu = QMenu(self)
        ended = bool(getattr(job.state, "ended", False))
        for text, signal, enabled in (
            ("Save proof…", self.save_asked, job.state == JobState.COMPLETED and not self.recorded),
            ("Cancel", self.cancel_asked, not ended and not self.recorded),
            ("Take off the list", self.hide_asked, ended or model.quiet_ns(job, self.jobs.now()) > 0),
        ):
            action = QAction(text, menu)
            action.setEnabled(enabled)
            action.triggered.connect(lambda _=False, signal=signal, job_id=job.id: signal.emit(job_id))
            menu.addAction(action)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(self.viewport().mapToGlobal(point))
