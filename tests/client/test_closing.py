"""A connection that is left by an interruption, which may have come in the middle of a call."""

from __future__ import annotations

import threading

import pytest

from cuzk_engine.client import EngineClient, api


def test_an_interruption_does_not_wait_for_a_call_that_nobody_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_CLOSE_TIME", 0.05)
    client, served = EngineClient("127.0.0.1:1"), threading.Event()
    closed = threading.Event()
    original = client.close

    def close() -> None:
        served.wait()
        original()
        closed.set()

    monkeypatch.setattr(client, "close", close)
    with pytest.raises(KeyboardInterrupt), client:
        raise KeyboardInterrupt
    assert not closed.is_set()
    served.set()
    assert closed.wait(10)
    for thread in threading.enumerate():
        if thread.name == "closing":
            thread.join(10)


def test_anything_else_closes_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    client, closed = EngineClient("127.0.0.1:1"), []
    original = client.close
    monkeypatch.setattr(client, "close", lambda: (closed.append(threading.current_thread().name), original()))
    with pytest.raises(ValueError, match="no matter"), client:
        raise ValueError("no matter")
    assert closed == [threading.current_thread().name]
