"""Circuits that the engine knows."""

from __future__ import annotations

import time
from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from cuzk_engine.client import CircuitInfo
from cuzk_gui.models import words
from cuzk_gui.widgets.controls import ElidedLabel, label, set_role

MOST_SHOWN = 30


class CircuitsPanel(QWidget):
    """``register_asked``: a key is to be chosen. ``chosen``: the memory plan shall be that of a circuit (its id)."""

    register_asked = Signal()
    chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._register = QPushButton("Register…")
        self._register.setProperty("role", "link")
        self._register.setToolTip("Choose a .zkey that the engine shall know")
        self._register.clicked.connect(self.register_asked)
        header = QHBoxLayout()
        header.addWidget(label("Circuits", "title"), 1)
        header.addWidget(self._register)
        self._rows = QVBoxLayout()
        self._rows.setSpacing(8)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addLayout(header)
        layout.addLayout(self._rows)
        self._shown: Sequence[CircuitInfo] | None = None
        self._names: dict[str, ElidedLabel] = {}
        self._marked = ""
        self.show_circuits([])

    def set_elsewhere(self) -> None:
        """Keys are files of another machine: there is none to be chosen here."""
        self._register.hide()

    def set_live(self, live: bool) -> None:
        self._register.setEnabled(live)

    def show_circuits(self, circuits: Sequence[CircuitInfo]) -> None:
        if circuits == self._shown:
            return
        self._shown = list(circuits)
        while (item := self._rows.takeAt(0)) is not None:
            widget = item.widget()
            if widget is not None:
                widget.hide()
                widget.deleteLater()
        self._names = {}
        recent = sorted(circuits, key=lambda c: -c.last_used_unix_ns)
        for circuit in recent[:MOST_SHOWN]:
            self._rows.addWidget(self._row(circuit))
        if len(recent) > MOST_SHOWN:
            self._rows.addWidget(label(f"and {len(recent) - MOST_SHOWN} more", "faint"))
        if not recent:
            self._rows.addWidget(label("none yet: a proof registers its key", "faint"))
        self.mark(self._marked)

    def mark(self, circuit_id: str) -> None:
        """The circuit that is planned for; it stands out where there are several."""
        self._marked = circuit_id
        for known, name in self._names.items():
            set_role(name, "chosen" if known == circuit_id and len(self._names) > 1 else "")

    def _row(self, circuit: CircuitInfo) -> QWidget:
        row = _Row(circuit.id)
        row.pressed.connect(self.chosen)
        name = ElidedLabel(words.plain(circuit.name, 80))
        self._names[circuit.id] = name
        used = label(_used(circuit.last_used_unix_ns), "muted")
        domain = circuit.domain_size
        shape = f"2^{domain.bit_length() - 1}" if domain > 0 and domain & (domain - 1) == 0 else f"{domain:,}"
        facts = ElidedLabel(
            f"{words.curve(circuit.curve)} · domain {shape} · {circuit.n_public:,} public · "
            f"{words.size(circuit.key_bytes)}"
        )
        facts.setProperty("role", "faint")
        row.setToolTip(f"{words.plain(circuit.key_path, 400)}\nA click shows the memory plan of this circuit.")
        line = QHBoxLayout()
        line.addWidget(name, 1)
        line.addWidget(used)
        layout = QVBoxLayout(row)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(1)
        layout.addLayout(line)
        layout.addWidget(facts)
        return row


class _Row(QWidget):
    pressed = Signal(str)

    def __init__(self, circuit_id: str) -> None:
        super().__init__()
        self._circuit = circuit_id
        self.setCursor(Qt.CursorShape.PointingHandCursor)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.pressed.emit(self._circuit)


def _used(unix_ns: int) -> str:
    if not unix_ns:
        return "not used yet"
    seconds = (time.time_ns() - unix_ns) / 1e9
    return "used just now" if seconds < 60 else f"used {words.span(seconds // 60 * 60)} ago"
