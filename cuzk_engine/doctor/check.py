"""One check's outcome, and how checks are run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from cuzk_engine.errors import CuzkError


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"  # works, but slower or not as meant
    PROBLEM = "problem"  # something does not work


@dataclass(frozen=True, slots=True)
class Check:
    """``found``: one sentence; ``advice``: what to do, "" where there is nothing."""

    name: str
    verdict: Verdict
    found: str
    advice: str = ""


Checker: TypeAlias = Callable[[], Check]


def ok(name: str, found: str) -> Check:
    return Check(name, Verdict.OK, found)


def warning(name: str, found: str, advice: str) -> Check:
    return Check(name, Verdict.WARNING, found, advice)


def problem(name: str, found: str, advice: str) -> Check:
    return Check(name, Verdict.PROBLEM, found, advice)


def run_all(checkers: Iterable[tuple[str, Checker]]) -> list[Check]:
    """Every check's outcome; one that fails itself is a problem, and keeps no other from running."""
    outcomes = []
    for name, checker in checkers:
        try:
            outcomes.append(checker())
        except CuzkError as error:
            outcomes.append(problem(name, str(error), "see the message"))
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            words = (error.strerror or str(error)).lower()
            outcomes.append(problem(name, f"could not be looked at: {where}{words}", "see the message"))
        except Exception as error:
            words = " ".join(str(error).split())
            outcomes.append(problem(name, f"could not be looked at: {type(error).__name__}: {words}", "report this"))
    return outcomes
