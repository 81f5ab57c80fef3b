"""The measured peak against the plan: never above it, and not far below. For every kind of device."""

from __future__ import annotations

from cuzk_engine.events import Purpose

DENSE, OTHERWISE = 1.03, 1.10


def assert_plan_is_true(device, prove, slack, what=""):
    """``prove`` makes one proof on ``device`` and returns its outcome, while nobody else uses the device."""
    device.ledger.reset_peak()
    outcome = prove()
    measured = device.memory().peak - device.memory().by_purpose.get(Purpose.CONTEXT, 0)
    assert measured <= outcome.peak_bytes, f"{measured:,} bytes were used, {outcome.peak_bytes:,} planned {what}"
    assert outcome.peak_bytes <= slack * measured, f"{outcome.peak_bytes:,} bytes planned, {measured:,} used {what}"
    return outcome
