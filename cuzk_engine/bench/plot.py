"""The figures of a run as a PNG, drawn with Pillow.

One row a variation: on the left every proof as a dot, over the box of the quartiles and the median; on the right the
medians of the phases, one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cuzk_engine.bench.results import Series, Spread
from cuzk_engine.errors import CuzkError

if TYPE_CHECKING:
    from PIL import ImageDraw, ImageFont

EXTRA: Final = "plot"
_SCALE: Final = 2  # pixels a point: sharp on dense screens
_WIDTH: Final = 1100
_ROW: Final = 46
_TOP: Final = 86
_BOTTOM: Final = 92
_LEFT_PANEL: Final = (210, 600)
_RIGHT_PANEL: Final = (690, 1070)
_MAX_DOTS: Final = 500
_MAX_NAME: Final = 190  # points

_PAPER: Final = "#ffffff"
_INK: Final = "#1f2933"
_FAINT: Final = "#6b7785"
_GRID: Final = "#e4e8ec"
_BOX: Final = "#c6d4e6"
_MEDIAN: Final = "#2f5f98"
# Colours of the window's charts, by what the phase is about.
_PHASES: Final = {
    "load_key": "#4c78a8",
    "read_witness": "#54a24b",
    "memory": "#8a8f98",
    "evaluate": "#72b7b2",
    "upload": "#eeca3b",
    "lock": "#5f6b7a",
    "ntt": "#f58518",
    "msm": "#b279a2",
    "assemble": "#8c6d5a",
    "verify": "#9ecae9",
}
_OTHERS: Final = ("#d4a6c8", "#bab0ac", "#88d27a", "#ffbf79")


def check_available() -> None:
    """Raises CuzkError that names the extra to install, before anything is measured."""
    try:
        import PIL.ImageDraw  # noqa: F401
    except ImportError as error:
        raise CuzkError(
            f"--plot needs Pillow, which is not installed: pip install 'cuzk[{EXTRA}]' (or pip install pillow)"
        ) from error


def draw(title: str, subtitle: str, series: Sequence[Series], path: Path) -> None:
    """Writes the picture. Raises CuzkError where it cannot be written."""
    import io

    from PIL import Image, ImageDraw

    from cuzk_engine.formats.atomic import write_atomically

    height = _TOP + _ROW * len(series) + _BOTTOM
    image = Image.new("RGB", (_WIDTH * _SCALE, height * _SCALE), _PAPER)
    _Sheet(ImageDraw.Draw(image)).draw(title, subtitle, series, height)
    data = io.BytesIO()
    image.save(data, "PNG")
    write_atomically(path, data.getvalue())


@dataclass(frozen=True, slots=True)
class _Axis:
    """From seconds to points."""

    left: int
    right: int
    end: float
    step: float

    @classmethod
    def over(cls, panel: tuple[int, int], largest: float) -> _Axis:
        step = nice_step(largest / 4)
        ticks = int(largest / step) + 1
        return cls(*panel, ticks * step, step)

    def at(self, seconds: float) -> float:
        return self.left + (self.right - self.left) * seconds / self.end

    def ticks(self) -> list[float]:
        return [number * self.step for number in range(round(self.end / self.step) + 1)]


def nice_step(value: float) -> float:
    """1, 2 or 5 times a power of ten, the next one that is not below ``value``."""
    power = 1e-9
    while power * 10 <= value:
        power *= 10
    return next((factor * power for factor in (1, 2, 5) if factor * power >= value), 10 * power)


class _Sheet:
    def __init__(self, canvas: ImageDraw.ImageDraw) -> None:
        self._canvas = canvas

    def draw(self, title: str, subtitle: str, series: Sequence[Series], height: int) -> None:
        self._text(24, 24, title, 17, _INK)
        self._text(24, 50, subtitle, 11, _FAINT)
        bottom = _TOP + _ROW * len(series)
        largest = max((proof.seconds for each in series for proof in each.proofs), default=1.0)
        phases = [each.phases() for each in series]
        longest = max((sum(spread.median for spread in each.values()) for each in phases), default=0.0)
        proofs = _Axis.over(_LEFT_PANEL, largest or 1.0)
        stack = _Axis.over(_RIGHT_PANEL, longest or 1.0)
        self._axis(proofs, bottom, "seconds a proof: each proof, quartiles, median")
        self._axis(stack, bottom, "median seconds of each phase")
        colours = _colours(name for each in phases for name in each)
        for number, (each, parts) in enumerate(zip(series, phases, strict=True)):
            middle = _TOP + _ROW * number + _ROW / 2
            self._text(24, middle - 7, self._fitted(each.variation.name, 12), 12, _INK)
            self._proofs(proofs, each, middle)
            self._phases(stack, parts, middle, colours)
        self._legend(colours, height - 30)

    def _axis(self, axis: _Axis, bottom: int, title: str) -> None:
        for tick in axis.ticks():
            x = axis.at(tick)
            self._line(x, _TOP, x, bottom, _GRID, 1)
            self._text(x, bottom + 6, f"{tick:g}" if tick else "0", 10, _FAINT, anchor="ma")
        self._text((axis.left + axis.right) / 2, bottom + 24, title, 11, _FAINT, anchor="ma")

    def _proofs(self, axis: _Axis, series: Series, middle: float) -> None:
        spread = series.seconds
        if spread is None:
            return
        first, third = spread.quartiles
        self._box(axis.at(first), middle - 11, max(axis.at(third), axis.at(first) + 1), middle + 11, _BOX)
        proofs = series.proofs
        for number, proof in enumerate(proofs[:: -(-len(proofs) // _MAX_DOTS)]):
            y = middle + (-6, 3, -3, 6, 0)[number % 5]  # beside each other where they are alike
            x = axis.at(proof.seconds)
            self._dot(x, y, 2.2)
        self._line(axis.at(spread.median), middle - 14, axis.at(spread.median), middle + 14, _MEDIAN, 2)
        self._text(axis.right + 10, middle - 7, _seconds(spread.median), 12, _INK)

    def _phases(self, axis: _Axis, phases: dict[str, Spread], middle: float, colours: dict[str, str]) -> None:
        done = 0.0
        for name, spread in phases.items():
            self._box(axis.at(done), middle - 11, axis.at(done + spread.median), middle + 11, colours[name])
            done += spread.median

    def _legend(self, colours: dict[str, str], y: float) -> None:
        x = 24.0
        for name, colour in colours.items():
            self._box(x, y - 5, x + 10, y + 5, colour)
            self._text(x + 15, y - 7, name, 11, _FAINT)
            x += 15 + self._length(name, 11) + 18

    # ---- in points ----

    def _text(self, x: float, y: float, text: str, size: int, colour: str, anchor: str = "la") -> None:
        self._canvas.text((x * _SCALE, y * _SCALE), text, fill=colour, font=_font(size), anchor=anchor)

    def _length(self, text: str, size: int) -> float:
        return float(self._canvas.textlength(text, font=_font(size))) / _SCALE

    def _fitted(self, text: str, size: int) -> str:
        if self._length(text, size) <= _MAX_NAME:
            return text
        while text and self._length(text + "…", size) > _MAX_NAME:
            text = text[:-1]
        return text + "…"

    def _line(self, x: float, y: float, to_x: float, to_y: float, colour: str, width: int) -> None:
        self._canvas.line(
            (x * _SCALE, y * _SCALE, to_x * _SCALE, to_y * _SCALE), fill=colour, width=max(1, width * _SCALE // 2)
        )

    def _box(self, left: float, top: float, right: float, bottom: float, colour: str) -> None:
        if right > left:
            self._canvas.rectangle((left * _SCALE, top * _SCALE, right * _SCALE, bottom * _SCALE), fill=colour)

    def _dot(self, x: float, y: float, radius: float) -> None:
        box = ((x - radius) * _SCALE, (y - radius) * _SCALE, (x + radius) * _SCALE, (y + radius) * _SCALE)
        self._canvas.ellipse(box, fill=_FAINT)


def _colours(names: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        if name not in found:
            found[name] = _PHASES.get(name) or _OTHERS[len(found) % len(_OTHERS)]
    return found


def _seconds(value: float) -> str:
    number, unit = (value, "s") if value >= 0.1 else (1000 * value, "ms")
    return f"{number:#.3g}".rstrip(".") + f" {unit}"


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    from PIL import ImageFont

    return ImageFont.load_default(size * _SCALE)
