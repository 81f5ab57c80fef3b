import psutil
import pytest

from cuzk_engine.telemetry.sampler import HostSampler


def test_readings_of_this_machine() -> None:
    sampler = HostSampler()
    first = sampler.sample("cpu", used=5, capacity=100)
    assert (first.memory_used, first.memory_capacity, first.utilisation) == (5, 100, None)
    assert first.memory_other is None  # others do not use the CPU device's account
    while (second := sampler.sample("cpu", used=5, capacity=100)).utilisation is None:
        pass  # the system counts in hundredths of a second
    assert 0 <= second.utilisation <= 1
    assert second.time_ns > first.time_ns


def test_what_cannot_be_read_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no /proc here")

    for name in ("cpu_times", "cpu_freq"):
        monkeypatch.setattr(psutil, name, fail)
    sample = HostSampler().sample("cpu", used=None, capacity=None)
    assert sample.memory_used is sample.utilisation is sample.clock is sample.power is None
