"""Renders assets/icon/cuzk.svg to the PNG that the window uses: ``python tools/render_icon.py``."""

import os
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QImage, QPainter
from PySide6.QtSvg import QSvgRenderer

ICONS = Path(__file__).resolve().parent.parent / "assets" / "icon"
SIZE = 256


def main() -> None:
    app = QGuiApplication([])
    image = QImage(SIZE, SIZE, QImage.Format.Format_ARGB32)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    QSvgRenderer(str(ICONS / "cuzk.svg")).render(painter)
    painter.end()
    if not image.save(str(ICONS / f"cuzk-{SIZE}.png")):
        raise SystemExit(f"{ICONS} could not be written")
    app.quit()


if __name__ == "__main__":
    main()
