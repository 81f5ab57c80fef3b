"""Colours and style of the whole window: two palettes, one style sheet, and what is to be told when they change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication

from cuzk_gui.models.causes import Blame
from cuzk_gui.models.groups import Group
from cuzk_gui.models.process import Tone


class ThemeChoice(StrEnum):
    SYSTEM = "system"
    DARK = "dark"
    LIGHT = "light"


@dataclass(frozen=True)
class Colours:
    """A palette; names say what a colour is for. Amber and red are kept for warnings and faults."""

    dark: bool
    background: str
    panel: str
    card: str
    border: str
    text: str
    muted: str
    faint: str
    control: str
    button: str
    hover: str
    selected: str
    accent: str
    on_accent: str
    grid: str
    good: str
    good_back: str
    warn: str
    warn_back: str
    bad: str
    bad_back: str
    bad_border: str
    on_bar_dark: str
    on_bar_light: str
    purposes: dict[str, str]
    groups: dict[Group, str]
    gaps: dict[Blame, str]  # tints of idle time
    pool: str  # memory that the pool keeps and nobody uses

    def purpose(self, name: str) -> str:
        return self.purposes.get(name, self.purposes["other"])

    def tone(self, tone: Tone) -> tuple[str, str]:
        """(foreground, background) of a state's pill or a banner."""
        return {
            Tone.QUIET: (self.muted, self.control),
            Tone.GOOD: (self.good, self.good_back),
            Tone.BUSY: (self.accent, self.control),
            Tone.WARN: (self.warn, self.warn_back),
            Tone.BAD: (self.bad, self.bad_back),
        }[tone]

    def on_bar(self, colour: str) -> str:
        """The text colour that reads better on a bar of ``colour``."""
        shade = QColor(colour)
        light = 0.299 * shade.redF() + 0.587 * shade.greenF() + 0.114 * shade.blueF()
        return self.on_bar_dark if light > 0.5 else self.on_bar_light


def _groups(purposes: dict[str, str], rest: dict[Group, str]) -> dict[Group, str]:
    return {
        Group.NTT: purposes["ntt"],
        Group.MSM: purposes["msm"],
        Group.MATRICES: purposes["matrices"],
        Group.ABC: purposes["abc"],
        Group.SRS: purposes["srs"],
        Group.WITNESS: purposes["witness"],
        Group.DOWN: purposes["result"],
        **rest,
    }


_DARK_PURPOSES: Final = {
    "srs": "#4c78a8",
    "matrices": "#72b7b2",
    "witness": "#54a24b",
    "abc": "#eeca3b",
    "ntt": "#f58518",
    "msm": "#b279a2",
    "scratch": "#8c6d5a",
    "result": "#7fb4ea",
    "context": "#5f6b7a",
    "other": "#6d6485",  # purposes that this version does not know
    "processes": "#8a8f98",
}
_LIGHT_PURPOSES: Final = {
    "srs": "#4672a3",
    "matrices": "#55a39d",
    "witness": "#4a9a41",
    "abc": "#dbb521",
    "ntt": "#ea7a0c",
    "msm": "#a66a95",
    "scratch": "#8a6852",
    "result": "#5b9fe0",
    "context": "#6c7889",
    "other": "#776d92",
    "processes": "#a3a8b0",
}
DARK: Final = Colours(
    dark=True,
    background="#14161a",
    panel="#1b1e24",
    card="#20252c",
    border="#2b3038",
    text="#e6e8eb",
    muted="#9aa3ad",
    faint="#7d8691",
    control="#242930",
    button="#26303c",
    hover="#2f3b49",
    selected="#31465c",
    accent="#4c9be8",
    on_accent="#0d1117",
    grid="#262b33",
    good="#4caf7d",
    good_back="#1f3a2c",
    warn="#e0a030",
    warn_back="#33290f",
    bad="#f0686c",
    bad_back="#3a2226",
    bad_border="#5a2d33",
    on_bar_dark="#0d1117",
    on_bar_light="#f2f4f6",
    purposes=_DARK_PURPOSES,
    groups=_groups(
        _DARK_PURPOSES,
        {
            Group.LOCK_EVEN: "#56688a",
            Group.LOCK_ODD: "#3d4b63",
            Group.UP_PINNED: "#4c9be8",
            Group.UP_PAGEABLE: "#d98c3f",
            Group.HOST: "#9aa3ad",
            Group.CHECK: "#6f7c8c",
            Group.OTHER: "#6d6485",
            Group.WAIT: "#3a4049",
        },
    ),
    gaps={
        Blame.NOBODY: "#23282f",
        Blame.SETTINGS: "#4d3c1a",
        Blame.OUTSIDE: "#3b3352",
        Blame.UNEXPLAINED: "#48505b",
    },
    pool="#333b46",
)
LIGHT: Final = Colours(
    dark=False,
    background="#eef0f3",
    panel="#ffffff",
    card="#f4f6f8",
    border="#d5dae0",
    text="#1b1f24",
    muted="#535c66",
    faint="#69727c",
    control="#e9ecf0",
    button="#f4f6f8",
    hover="#e4e9ef",
    selected="#cfe0f5",
    accent="#1f6fc4",
    on_accent="#ffffff",
    grid="#e8ebef",
    good="#17774a",
    good_back="#d8f0e2",
    warn="#8a5d00",
    warn_back="#fbefcf",
    bad="#c0282f",
    bad_back="#fbe3e4",
    bad_border="#eab4b7",
    on_bar_dark="#11151a",
    on_bar_light="#ffffff",
    purposes=_LIGHT_PURPOSES,
    groups=_groups(
        _LIGHT_PURPOSES,
        {
            Group.LOCK_EVEN: "#7286a8",
            Group.LOCK_ODD: "#9aaac4",
            Group.UP_PINNED: "#3d8be0",
            Group.UP_PAGEABLE: "#d07f2c",
            Group.HOST: "#8a939d",
            Group.CHECK: "#74808f",
            Group.OTHER: "#776d92",
            Group.WAIT: "#cfd4da",
        },
    ),
    gaps={
        Blame.NOBODY: "#eff1f4",
        Blame.SETTINGS: "#f6e3b8",
        Blame.OUTSIDE: "#e0d9f0",
        Blame.UNEXPLAINED: "#b9c0c8",
    },
    pool="#dfe3e8",
)


def ui_font(pixels: float = 12.5, bold: bool = False) -> QFont:
    """The platform's sans font at a size in pixels, digits of one width."""
    font = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
    font.setPixelSize(round(pixels))
    font.setWeight(QFont.Weight.DemiBold if bold else QFont.Weight.Normal)
    font.setFeature(QFont.Tag("tnum"), 1)
    return font


class Theme(QObject):
    """The palette in use; follows the system unless told otherwise."""

    changed = Signal()

    def __init__(self, app: QApplication, choice: ThemeChoice = ThemeChoice.SYSTEM) -> None:
        super().__init__()
        self._app = app
        self._choice = choice
        self.colours = DARK
        app.setStyle("Fusion")
        app.setFont(ui_font())
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._apply)
        self._apply()

    @property
    def choice(self) -> ThemeChoice:
        return self._choice

    def choose(self, choice: ThemeChoice) -> None:
        self._choice = choice
        self._apply()

    def close(self) -> None:
        """Stops following the system."""
        QGuiApplication.styleHints().colorSchemeChanged.disconnect(self._apply)

    def _apply(self) -> None:
        light_system = QGuiApplication.styleHints().colorScheme() is Qt.ColorScheme.Light
        light = self._choice is ThemeChoice.LIGHT or (self._choice is ThemeChoice.SYSTEM and light_system)
        colours = LIGHT if light else DARK
        if colours is self.colours and self._app.styleSheet():
            return
        self.colours = colours
        self._app.setPalette(_palette(colours))
        self._app.setStyleSheet(style_sheet(colours))
        self.changed.emit()


def _palette(c: Colours) -> QPalette:
    palette = QPalette()
    role = QPalette.ColorRole
    for target, colour in (
        (role.Window, c.background),
        (role.WindowText, c.text),
        (role.Base, c.panel),
        (role.AlternateBase, c.control),
        (role.Text, c.text),
        (role.Button, c.button),
        (role.ButtonText, c.text),
        (role.ToolTipBase, c.control),
        (role.ToolTipText, c.text),
        (role.PlaceholderText, c.faint),
        (role.Highlight, c.selected),
        (role.HighlightedText, c.text),
        (role.Link, c.accent),
    ):
        palette.setColor(target, QColor(colour))
    for target in (role.WindowText, role.Text, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, target, QColor(c.faint))
    return palette


def style_sheet(c: Colours) -> str:
    return f"""
QMainWindow, QDialog {{ background: {c.background}; }}
QWidget#top {{ background: {c.panel}; border-bottom: 1px solid {c.border}; }}
QWidget#top[recorded="true"] {{ background: {c.selected}; }}
QFrame[panel="true"] {{ background: {c.panel}; border: 1px solid {c.border}; border-radius: 8px; }}
QLabel {{ color: {c.text}; background: transparent; }}
QLabel[role="brand"] {{ font-size: 17px; font-weight: 600; }}
QLabel[role="title"] {{ font-size: 13px; font-weight: 600; }}
QLabel[role="title-selected"] {{ font-size: 13px; font-weight: 600; color: {c.accent}; }}
QLabel[role="chosen"] {{ color: {c.accent}; }}
QLabel[role="muted"] {{ color: {c.muted}; font-size: 12px; }}
QLabel[role="faint"] {{ color: {c.faint}; font-size: 11px; }}
QLabel[role="error"] {{ color: {c.bad}; }}
QLabel[role="warn"] {{ color: {c.warn}; font-size: 12px; }}
QPushButton {{ background: {c.button}; color: {c.text}; border: 1px solid {c.border}; border-radius: 5px;
  padding: 4px 14px; min-height: 18px; }}
QPushButton:hover {{ background: {c.hover}; }}
QPushButton:pressed {{ background: {c.selected}; }}
QPushButton:focus {{ border-color: {c.accent}; }}
QPushButton:disabled {{ color: {c.faint}; background: {c.panel}; }}
QPushButton[role="primary"] {{ background: {c.accent}; color: {c.on_accent}; border-color: {c.accent};
  font-weight: 600; }}
QPushButton[role="primary"]:hover {{ background: {QColor(c.accent).lighter(112).name()}; }}
QPushButton[role="primary"]:focus {{ border-color: {c.text}; }}
QPushButton[role="primary"]:disabled {{ background: {c.control}; color: {c.faint}; border-color: {c.border}; }}
QPushButton[role="danger"] {{ background: {c.bad_back}; color: {c.bad}; border-color: {c.bad_border}; }}
QPushButton[role="danger"]:hover {{ border-color: {c.bad}; }}
QPushButton[role="danger"]:disabled {{ background: {c.panel}; color: {c.faint}; border-color: {c.border}; }}
QPushButton[role="link"] {{ background: transparent; color: {c.accent}; border: 1px solid transparent; padding: 1px 4px;
  font-size: 12px; border-radius: 4px; }}
QPushButton[role="link"]:hover {{ background: {c.control}; }}
QPushButton[role="link"]:focus {{ border-color: {c.accent}; }}
QPushButton[role="link"]:disabled {{ color: {c.faint}; }}
QPushButton[role="small"] {{ background: {c.button}; color: {c.accent}; padding: 1px 10px; font-size: 12px; }}
QPushButton[role="small"]:hover {{ background: {c.hover}; }}
QPushButton[role="small"]:disabled {{ color: {c.faint}; background: transparent; }}
QFrame[card] {{ background: {c.card}; border: none; border-left: 3px solid {c.faint}; border-radius: 4px; }}
QFrame[card="bad"] {{ border-left-color: {c.bad}; }}
QFrame[card="good"] {{ border-left-color: {c.good}; }}
QFrame[card="warn"] {{ border-left-color: {c.warn}; }}
QLabel[role="card-title"] {{ font-size: 12px; font-weight: 600; }}
QLabel[role="card-text"] {{ font-size: 12px; }}
QLabel[role="gain"] {{ color: {c.warn}; font-size: 12px; }}
QLabel[role="headline"] {{ font-size: 16px; font-weight: 600; }}
QFrame#segmented, QFrame#stepper {{ background: {c.control}; border: 1px solid {c.border}; border-radius: 5px; }}
QToolButton[segment="true"] {{ color: {c.muted}; background: transparent; border: 1px solid transparent;
  border-radius: 4px; padding: 2px 8px; font-size: 12px; }}
QToolButton[segment="true"]:hover {{ color: {c.text}; }}
QToolButton[segment="true"]:checked {{ color: {c.text}; background: {c.selected}; font-weight: 600; }}
QToolButton[segment="true"]:focus {{ border-color: {c.accent}; }}
QToolButton[segment="true"]:disabled {{ color: {c.faint}; }}
QToolButton[menu="true"] {{ color: {c.muted}; background: transparent; border: 1px solid transparent;
  border-radius: 5px; padding: 4px 8px; }}
QToolButton[menu="true"]:hover {{ background: {c.control}; color: {c.text}; }}
QToolButton[menu="true"]::menu-indicator {{ image: none; }}
QLineEdit, QComboBox {{ background: {c.control}; color: {c.text}; border: 1px solid {c.border}; border-radius: 5px;
  padding: 3px 8px; min-height: 19px; selection-background-color: {c.selected}; selection-color: {c.text}; }}
QLineEdit:focus, QComboBox:focus {{ border-color: {c.accent}; }}
QComboBox::drop-down {{ border: none; width: 22px; }}
QComboBox QAbstractItemView {{ background: {c.control}; color: {c.text}; border: 1px solid {c.border};
  selection-background-color: {c.selected}; selection-color: {c.text}; }}
QListView, QTableView, QPlainTextEdit, QTreeView {{ background: transparent; color: {c.text}; border: none;
  selection-background-color: {c.selected}; selection-color: {c.text}; }}
QTableView {{ gridline-color: {c.grid}; alternate-background-color: {c.control}; }}
QTableView::item {{ padding: 0 6px; }}
QHeaderView {{ background: {c.panel}; }}
QHeaderView::section {{ background: {c.panel}; color: {c.muted}; border: none; border-bottom: 1px solid {c.border};
  padding: 4px 8px; }}
QTableCornerButton::section {{ background: {c.panel}; border: none; }}
QTabWidget::pane {{ border: 1px solid {c.border}; border-radius: 6px; }}
QTabBar::tab {{ color: {c.muted}; padding: 6px 14px; background: transparent; border-bottom: 2px solid transparent; }}
QTabBar::tab:selected {{ color: {c.text}; border-bottom: 2px solid {c.accent}; }}
QScrollArea, QScrollArea > QWidget > QWidget#scrolled {{ background: transparent; border: none; }}
QScrollBar:vertical {{ background: transparent; width: 10px; margin: 1px; }}
QScrollBar:horizontal {{ background: transparent; height: 10px; margin: 1px; }}
QScrollBar::handle {{ background: {c.border}; border-radius: 4px; min-height: 24px; min-width: 24px; }}
QScrollBar::handle:hover {{ background: {c.faint}; }}
QScrollBar::add-line, QScrollBar::sub-line, QScrollBar::add-page, QScrollBar::sub-page {{ background: none; height:
0; width: 0; }}
QSplitter::handle {{ background: transparent; }}
QSplitter::handle:hover {{ background: {c.border}; }}
QMenu {{ background: {c.panel}; color: {c.text}; border: 1px solid {c.border}; padding: 4px; }}
QMenu::item {{ padding: 5px 24px 5px 22px; border-radius: 4px; }}
QMenu::item:selected {{ background: {c.selected}; }}
QMenu::item:disabled {{ color: {c.faint}; }}
QMenu::separator {{ height: 1px; background: {c.border}; margin: 4px 6px; }}
QMenu::indicator {{ width: 12px; height: 12px; left: 5px; }}
QToolTip {{ background: {c.control}; color: {c.text}; border: 1px solid {c.border}; padding: 4px; }}
QFrame#hover {{ background: {c.control}; border: 1px solid {c.border}; border-radius: 5px; }}
QFrame[line="true"] {{ background: {c.border}; border: none; max-height: 1px; min-height: 1px; }}
"""
