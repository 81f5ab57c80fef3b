"""The content of the charts as sortable tables."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtWidgets import (
    QDialog,
    QHBoxLayout,
    QHeaderView,
    QPushButton,
    QTableView,
    QTabWidget,
    QVBoxLayout,
    QWidget,
)

from cuzk_gui.charts.chart import Row
from cuzk_gui.charts.stack import ChartStack
from cuzk_gui.models import words
from cuzk_gui.models.session import Session
from cuzk_gui.widgets.controls import label

MOST_ROWS = 5000
Index = QModelIndex | QPersistentModelIndex


class RowsModel(QAbstractTableModel):
    """Rows as they are; sorting reorders them here, numbers as numbers."""

    def __init__(self, columns: list[str], rows: list[Row]) -> None:
        super().__init__()
        self._columns = columns
        self._rows = rows

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008  Qt's own default
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self._columns)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        value = self._rows[index.row()][index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return f"{value:,}" if isinstance(value, int) else str(value)
        if role == Qt.ItemDataRole.TextAlignmentRole and not isinstance(value, str):
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        return None

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if role == Qt.ItemDataRole.DisplayRole and orientation == Qt.Orientation.Horizontal:
            return self._columns[section]
        if role == Qt.ItemDataRole.TextAlignmentRole and orientation == Qt.Orientation.Horizontal:
            number = bool(self._rows) and not isinstance(self._rows[0][section], str)
            side = Qt.AlignmentFlag.AlignRight if number else Qt.AlignmentFlag.AlignLeft
            return side | Qt.AlignmentFlag.AlignVCenter
        return None

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        self.layoutAboutToBeChanged.emit()
        self._rows.sort(
            key=lambda row: (isinstance(row[column], str), row[column]), reverse=order == Qt.SortOrder.DescendingOrder
        )
        self.layoutChanged.emit()


class TableDialog(QDialog):
    """A tab for each chart, one for idle time and one for marks and incidents; what it shows is taken when it opens or
    on Refresh."""

    def __init__(
        self,
        charts: ChartStack,
        session: Session,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle("Charts as tables")
        self.resize(920, 560)
        self._charts = charts.charts
        self._gaps = charts.lanes.gap_rows
        self._session = session
        self._tabs = QTabWidget()
        self._note = label("", "muted")
        refresh, close = QPushButton("Refresh"), QPushButton("Close")
        refresh.clicked.connect(self.refresh)
        close.clicked.connect(self.accept)
        buttons = QHBoxLayout()
        buttons.addWidget(self._note, 1)
        buttons.addWidget(refresh)
        buttons.addWidget(close)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(14, 14, 14, 14)
        layout.addWidget(self._tabs, 1)
        layout.addLayout(buttons)
        self._views: list[QTableView] = []
        for name in (*(chart.title for chart in self._charts), "Idle time", "Marks and incidents"):
            view = QTableView()
            view.setAccessibleName(f"{name}, table")
            view.setSortingEnabled(True)
            view.setAlternatingRowColors(True)
            view.setShowGrid(False)
            view.verticalHeader().hide()
            view.verticalHeader().setDefaultSectionSize(22)
            view.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
            view.horizontalHeader().setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
            self._tabs.addTab(view, name)
            self._views.append(view)
        self.refresh()

    def refresh(self) -> None:
        contents = [(list(chart.columns()), chart.rows(MOST_ROWS)) for chart in self._charts]
        contents.append((["Begun", "Duration, ms", "Cause", "Evidence", "Worker"], self._gaps(MOST_ROWS)))
        contents.append((["Time", "Kind", "Device", "Text"], self._marks()))
        for view, (columns, rows) in zip(self._views, contents, strict=True):
            old = view.model()
            view.setModel(RowsModel(columns, rows))
            view.sortByColumn(0, Qt.SortOrder.AscendingOrder)
            view.resizeColumnsToContents()
            if old is not None:
                old.deleteLater()
        cut = any(len(rows) >= MOST_ROWS for _, rows in contents)
        self._note.setText(f"the shown stretch, its newest {MOST_ROWS:,} rows" if cut else "the shown stretch")

    def _marks(self) -> list[Row]:
        offset = self._session.wall_offset_ns
        found: list[tuple[int, Row]] = [
            (m.time_ns, (words.clock(m.time_ns + offset), m.kind, m.device, words.plain(m.text)))
            for m in self._session.marks
        ]
        found += [
            (i.time_ns, (words.clock(i.time_ns + offset), i.kind, i.device, words.plain(i.message)))
            for i in self._session.incidents
        ]
        return [row for _, row in sorted(found, key=lambda item: item[0])[-MOST_ROWS:]]
