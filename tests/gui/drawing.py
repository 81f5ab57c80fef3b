"""What tests of charts share: filling a session, and looking at what was painted."""

import time

import numpy as np
from PySide6.QtGui import QColor, QImage

from cuzk_gui.charts.scene import Scene
from cuzk_gui.charts.stack import ChartStack
from cuzk_gui.models.digest import digests
from tests.gui import fakes
from tests.gui.fakes import MIB


def feed(scene: Scene, *updates: object) -> None:
    for update in updates:
        for digest in digests(update, scene.session.names):
            scene.session.apply(digest)
    scene.view.set_now(scene.session.seconds(scene.session.latest_ns))


def picture(stack: ChartStack, chart) -> QImage:
    stack.frame(True)
    return chart.plot.grab().toImage()


def count(image: QImage, colour: str) -> int:
    wanted = QColor(colour).rgb()
    pointer = image.convertToFormat(QImage.Format.Format_RGB32)
    pixels = np.frombuffer(pointer.constBits(), dtype=np.uint32).reshape(pointer.height(), pointer.bytesPerLine() // 4)
    return int((pixels[:, : pointer.width()] == wanted).sum())


def colour_at(image: QImage, x: float, y: float) -> str:
    return image.pixelColor(round(x), round(y)).name()


def start(scene: Scene, memory: dict | None = None) -> None:
    feed(
        scene,
        fakes.update(
            0, identity=fakes.identity(started_unix_ns=time.time_ns()), memory=memory or {("cpu", "srs"): 4 * MIB}
        ),
    )
