"""The picture: what is in it is where the figures say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.bench.plot import draw, nice_step
from cuzk_engine.bench.results import ProofTime, Round, Series
from cuzk_engine.bench.variations import Variation
from cuzk_engine.errors import CuzkError

Image = pytest.importorskip("PIL.Image")

MSM, NTT, MEDIAN = (0xB2, 0x79, 0xA2), (0xF5, 0x85, 0x18), (0x2F, 0x5F, 0x98)


def series(name: str, seconds: list[float]) -> Series:
    made = Series(Variation(name))
    proofs = tuple(ProofTime(each, {"ntt": each / 4, "msm": each / 2}) for each in seconds)
    made.rounds.append(Round(proofs, sum(seconds), None, 1, 1))
    return made


def columns(image: object, colour: tuple[int, int, int], row: int) -> list[int]:
    width = image.size[0]
    return [x for x in range(width) if image.getpixel((x, row)) == colour]


def test_bars_and_medians_are_as_long_as_the_figures(tmp_path: Path) -> None:
    path = tmp_path / "figures.png"
    draw("title", "subtitle", [series("one", [1.0, 1.0]), series("two", [2.0, 2.0])], path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    with Image.open(path) as image:
        rows = [2 * (86 + 46 * number + 23) for number in range(2)]
        lengths = [len(columns(image, MSM, row)) for row in rows]
        assert lengths[1] == pytest.approx(2 * lengths[0], abs=4)
        assert len(columns(image, NTT, rows[1])) == pytest.approx(lengths[1] / 2, abs=4)
        medians = [min(columns(image, MEDIAN, row - 24)) for row in rows]
        zero = 2 * 210
        assert medians[1] - zero == pytest.approx(2 * (medians[0] - zero), abs=4)


def test_long_names_many_proofs_and_none(tmp_path: Path) -> None:
    path = tmp_path / "figures.png"
    many = series("a name that is much longer than the room for it, " * 3, [0.001 * n for n in range(1, 2000)])
    draw("t" * 300, "s", [many, Series(Variation("none"))], path)
    with Image.open(path) as image:
        assert image.size == (2200, 2 * (86 + 2 * 46 + 92))


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CuzkError, match="missing"):
        draw("t", "s", [series("one", [1.0])], tmp_path / "missing" / "figures.png")


@given(st.floats(1e-6, 1e5))
def test_steps_are_round_and_not_too_small(value: float) -> None:
    step = nice_step(value)
    assert value <= step <= 2.5 * value * (1 + 1e-9)
    digits = f"{step:e}"
    assert digits[:8] in ("1.000000", "2.000000", "5.000000")
