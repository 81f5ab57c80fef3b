"""The compute lock: one at a time, in order of arrival, cancellable, and each wait and hold is a span."""

import itertools
import threading

import pytest

from cuzk_engine.devices.base import CancelToken, Owner
from cuzk_engine.devices.lock import ComputeLock
from cuzk_engine.errors import CancelledError
from cuzk_engine.events import Kind


def until_waiting(lock, count):
    """Until `count` threads wait for the lock; bounded by the test's time limit."""
    with lock._changed:
        while lock.waiting < count:
            lock._changed.wait(timeout=0.01)


def test_first_come_first_served():
    events, order = [], []
    lock = ComputeLock("cpu", events.append)

    def work(number):
        with lock.hold(Owner("job", 0, number), CancelToken()):
            order.append(number)

    threads = []
    with lock.hold(Owner("first", 0, 9), CancelToken()):
        for number in range(5):
            threads.append(threading.Thread(target=work, args=(number,)))
            threads[-1].start()
            until_waiting(lock, number + 1)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]
    held = sorted((span for span in events if span.kind == Kind.LOCK_HELD), key=lambda span: span.start_ns)
    waits = [span for span in events if span.kind == Kind.LOCK_WAIT]
    assert [span.worker for span in held] == [9, 0, 1, 2, 3, 4]
    assert len(waits) == 6
    assert {span.lane for span in events} == {"lock"}
    for earlier, later in itertools.pairwise(held):
        assert earlier.end_ns <= later.start_ns
    for span in waits:
        (hold,) = [other for other in held if other.worker == span.worker]
        assert span.end_ns == hold.start_ns


def test_a_cancelled_waiter_lets_the_next_one_in():
    lock, cancel = ComputeLock("cpu"), CancelToken()
    outcomes = {}

    def work(name, token):
        try:
            with lock.hold(Owner(name), token):
                outcomes[name] = "held"
        except CancelledError:
            outcomes[name] = "cancelled"

    with lock.hold(Owner("first"), CancelToken()):
        threads = []
        for index, (name, token) in enumerate([("second", cancel), ("third", CancelToken())]):
            threads.append(threading.Thread(target=work, args=(name, token)))
            threads[-1].start()
            until_waiting(lock, index + 1)
        cancel.set()
        threads[0].join()
        assert outcomes == {"second": "cancelled"}
    threads[1].join()
    assert outcomes == {"second": "cancelled", "third": "held"}
    assert lock.waiting == 0


def test_an_error_inside_gives_the_lock_back():
    lock = ComputeLock("cpu")
    with pytest.raises(RuntimeError, match="inside"), lock.hold(Owner(), CancelToken()):
        raise RuntimeError("inside")
    with lock.hold(Owner(), CancelToken()):
        assert lock.waiting == 0


def test_cancel_token_calls_back_once_set():
    token, calls = CancelToken(), []
    stop = token.on_set(lambda: calls.append("first"))
    stop()
    token.on_set(lambda: calls.append("second"))
    token.set()
    assert calls == ["second"]
    token.on_set(lambda: calls.append("late"))
    assert calls == ["second", "late"]
    with pytest.raises(CancelledError):
        token.check()
