"""The window's time is given out in parts: nothing is left out, nothing comes twice, nothing waits for long."""

from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from cuzk_gui.turns import Turns
from cuzk_gui.widgets.pages import Pages


def turns(done: list[str]) -> Turns:
    return Turns(
        (lambda: done.append("take in"), lambda: done.append("show")),
        lambda: (lambda: done.append("loads"), lambda: done.append("jobs")),
    )


def test_one_part_a_turn() -> None:
    done: list[str] = []
    made = turns(done)
    for count in range(1, 7):
        made.take()
        assert len(done) == count
    assert done == ["take in", "show", "loads", "take in", "show", "jobs"]


def test_what_is_due_soon_goes_first_and_once() -> None:
    done: list[str] = []
    made = turns(done)
    made.soon(lambda: done.append("first part"), lambda: done.append("second part"))
    for _ in range(3):
        made.take()
    assert done == ["first part", "second part", "take in"]


def test_what_concerned_another_page_does_not_come_any_more() -> None:
    done: list[str] = []
    made = turns(done)
    for _ in range(3):
        made.take()  # the round has begun
    made.soon(lambda: done.append("of a page that is gone"))
    made.restart()
    made.take_all()
    assert done[3:] == ["take in", "show", "loads", "jobs"]  # a new round


def test_parts_of_a_page_appear_one_by_one(qtbot: QtBot) -> None:
    live, page = QWidget(), QWidget()
    parts = [QWidget(page) for _ in range(3)]
    pages = Pages(live)
    qtbot.addWidget(pages)
    pages.addWidget(page)
    pages.show()
    pages.show_page(page, parts)
    shown = []
    for _ in parts:
        shown.append([part.updatesEnabled() for part in parts])
        pages.reveal()
    assert shown == [[False, False, False], [True, False, False], [True, True, False]]
    assert all(part.updatesEnabled() for part in parts)


def test_no_part_stays_hidden_when_another_page_is_shown(qtbot: QtBot) -> None:
    live, page = QWidget(), QWidget()
    parts = [QWidget(page) for _ in range(3)]
    pages = Pages(live)
    qtbot.addWidget(pages)
    pages.addWidget(page)
    pages.show_page(page, parts)
    pages.show_cover("Opening another…")
    assert all(part.updatesEnabled() for part in parts)
    assert pages.currentWidget() is pages.cover
