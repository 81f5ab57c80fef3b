"""What a fault in one of several things that are waited for or freed leaves of the others: nothing."""

from contextlib import ExitStack

import pytest

from cuzk_engine.devices.base import Owner
from cuzk_engine.devices.memory import HostBuffer
from cuzk_engine.events import Purpose
from cuzk_engine.keys import KeyCache
from cuzk_engine.pipeline.modes import PipelineSettings, Residency
from cuzk_engine.pipeline.staging import allocate_abc, do_all
from cuzk_engine.runner import Runner
from tests.support.card import Card
from tests.support.cases import case

ME = Owner("job", 0, 0)


class StuckError(Exception):
    """What a driver says when memory is freed."""


class Run:
    owner = ME


@pytest.mark.parametrize("number", range(3))
def test_each_is_done(number):
    done = []

    def one(k):
        done.append(k)
        if k == number:
            raise StuckError(str(k))

    with pytest.raises(StuckError, match=str(number)):
        do_all([lambda k=k: one(k) for k in range(3)])
    assert done == [0, 1, 2]


def stick(monkeypatch, purpose, after=0):
    """Of the frees of this purpose, the one after so many fails when its bytes were given back."""
    free, left = HostBuffer.free, [after]

    def fail_once(buffer):
        free(buffer)
        if buffer.purpose == purpose and left:
            left[0] -= 1
            if left[0] < 0:
                left.clear()
                raise StuckError(purpose)

    monkeypatch.setattr(HostBuffer, "free", fail_once)


@pytest.mark.parametrize("number", range(3))
def test_vectors_that_cannot_be_freed(monkeypatch, number):
    card = Card(1 << 20)
    stick(monkeypatch, Purpose.ABC, number)
    with pytest.raises(StuckError), ExitStack() as stack:
        allocate_abc(stack, card, Run, 1 << 10)
    assert card.memory().used == 0


@pytest.mark.parametrize("purpose", [Purpose.RESULT, Purpose.SRS])
def test_results_and_points_that_cannot_be_freed(monkeypatch, purpose):
    """The proof fails, and the next one finds all of the memory."""
    item, card = case("bn128", "merkle10"), Card(1 << 30)
    runner, settings = Runner(card, KeyCache()), PipelineSettings(residency=Residency.HOST)
    files = item.path("circuit.zkey"), item.path("witness.wtns")
    runner.prove(*files, ME, settings)
    runner.release_caches()
    with monkeypatch.context() as patch:
        stick(patch, purpose)
        with pytest.raises(StuckError):
            runner.prove(*files, ME, settings)
    runner.release_caches()
    card.drop_residents()
    assert card.memory().used == card.ledger.committed == 0
    runner.prove(*files, ME, settings)
