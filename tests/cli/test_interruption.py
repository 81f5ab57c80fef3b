"""A signal reaches the work, whichever thread the system gave it to."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuzk_engine.bench.crew import Crew
from cuzk_engine.bench.interruption import InterruptedRunError, Interruption
from cuzk_engine.cli.console import ProgressLine
from cuzk_engine.cli.prove import _interruptible, _Task
from tests.support.daemons import wait_for


def until_main_sleeps(function: Callable[..., Any]) -> None:
    """Until the main thread waits in ``function``, and not for the start of a thread."""

    def sleeps() -> bool:
        frame, codes = sys._current_frames()[threading.main_thread().ident or 0], set()
        while frame is not None:
            codes.add(frame.f_code)
            frame = frame.f_back  # type: ignore[assignment]
        state = Path(f"/proc/self/task/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[0]
        return function.__code__ in codes and threading.Thread.start.__code__ not in codes and state == "S"

    wait_for(lambda: sleeps() and sleeps())


def test_proving_hears_a_signal_that_another_thread_was_given() -> None:
    heard = threading.Event()

    def work(task: _Task) -> dict[str, Any]:
        task.when_interrupted(heard.set)
        until_main_sleeps(_Task.wait)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        return {"heard": heard.wait(10)}

    task = _Task(argparse.Namespace(), work)
    with _interruptible(task):
        task.wait(ProgressLine(None))
    assert task.result == {"heard": True}
    assert task.interrupted_by == signal.SIGINT


def test_a_round_hears_a_signal_that_another_thread_was_given() -> None:
    stopped = threading.Event()

    def work(item: int, thread: int) -> bool:
        if thread == 0:
            until_main_sleeps(Crew.run)
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        assert stopped.wait(10)
        return True

    with Interruption() as interruption, pytest.raises(InterruptedRunError):
        Crew(2, work, stopped.set, interruption).run(range(2))
