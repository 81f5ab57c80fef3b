"""What the window remembers between two starts: an INI file in the configuration folder."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from PySide6.QtCore import QByteArray, QDir, QSettings, QStandardPaths

from cuzk_gui.remote import Access
from cuzk_gui.theme import ThemeChoice

E = TypeVar("E", bound=StrEnum)
MOST_ENGINES: Final = 12


class OnClose(StrEnum):
    """What becomes of the engine when the window closes."""

    ASK = "ask"
    KEEP = "keep"
    STOP = "stop"


def preferences_file() -> Path:
    """In ``$CUZK_HOME/config`` when that is set, else in the platform's folder."""
    home = os.environ.get("CUZK_HOME")
    if home:
        return Path(home).expanduser().absolute() / "config" / "window.ini"
    folder = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.GenericConfigLocation)
    return Path(folder) / "cuzk" / "window.ini"


class Preferences:
    """Values with defaults; one that cannot be read counts as not set."""

    def __init__(self, file: Path | None = None) -> None:
        self._settings = QSettings(str(file or preferences_file()), QSettings.Format.IniFormat)

    @property
    def theme(self) -> ThemeChoice:
        return _member(ThemeChoice, self._text("theme"), ThemeChoice.SYSTEM)

    @theme.setter
    def theme(self, value: ThemeChoice) -> None:
        self._settings.setValue("theme", value.value)

    @property
    def on_close(self) -> OnClose:
        return _member(OnClose, self._text("on_close"), OnClose.ASK)

    @on_close.setter
    def on_close(self, value: OnClose) -> None:
        self._settings.setValue("on_close", value.value)

    @property
    def log_level(self) -> str:
        return self._text("log_level") or "INFO"

    @log_level.setter
    def log_level(self, value: str) -> None:
        self._settings.setValue("log_level", value)

    @property
    def engines(self) -> list[Access]:
        """Engines at an address that were asked for, the last one first."""
        try:
            rows = json.loads(self._text("engines") or "[]")
            found = [Access(*row) for row in rows]
        except (TypeError, ValueError):
            return []
        texts = all(isinstance(part, str) for one in found for part in (one.address, one.certificate, one.token))
        return found[:MOST_ENGINES] if texts else []

    def remember_engine(self, access: Access) -> None:
        """Its address and the names of its files; not what is in them."""
        rest = [one for one in self.engines if one.address != access.address]
        rows = [[one.address, one.certificate, one.token] for one in (access, *rest)]
        self._settings.setValue("engines", json.dumps(rows[:MOST_ENGINES]))

    def folder(self, name: str) -> str:
        """The folder that a file dialog was last used in, at first the user's own."""
        return self._text(f"folders/{name}") or QDir.homePath()

    def set_folder(self, name: str, folder: str) -> None:
        self._settings.setValue(f"folders/{name}", folder)

    def state(self, name: str) -> QByteArray | None:
        value = self._settings.value(f"state/{name}")
        return value if isinstance(value, QByteArray) and not value.isEmpty() else None

    def set_state(self, name: str, value: QByteArray) -> None:
        self._settings.setValue(f"state/{name}", value)

    def save(self) -> None:
        self._settings.sync()

    def _text(self, key: str) -> str:
        value = self._settings.value(key)
        return value if isinstance(value, str) else ""


def _member(kind: type[E], text: str, default: E) -> E:
    try:
        return kind(text)
    except ValueError:
        return default
