"""Samples of cards, and of cards that go, hang or come back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cuzk_engine.events import EventBatch, Sample
from cuzk_engine.nvml import Memory, Reading
from cuzk_engine.telemetry.gpu_sampler import NOTHING, GpuSampler, Look, Target, own_bytes, sample_of
from tests.conftest import ExpectedLogs
from tests.support.daemons import wait_for
from tests.support.fake_nvml import MIB, UNKNOWN, FakeCard, FakeNvml

FIRST, SECOND = Target("GPU-aaaa", "0000:1B:00.0", (7,)), Target("GPU-bbbb", "0000:9A:00.0", (8,))


def cards() -> tuple[FakeCard, FakeCard]:
    return FakeCard("GPU-aaaa", "00000000:1B:00.0"), FakeCard("GPU-bbbb", "00000000:9A:00.0", used=200 * MIB)


class Bench:
    def __init__(self) -> None:
        self.samplers: list[tuple[GpuSampler, FakeNvml]] = []
        self.batch = EventBatch.empty()

    def start(self, library: FakeNvml, targets: dict[str, Target], **options: Any) -> GpuSampler:
        sampler = GpuSampler(library, sample_seconds=0.01, retry_seconds=0.02, **options)
        self.samplers.append((sampler, library))
        sampler.watch(targets)
        return sampler

    def sample(self, device: str, fits: Callable[[Sample], bool] = lambda _: True) -> Sample:
        """The next one that fits."""
        self.batch.samples.clear()
        found: list[Sample] = []

        def look() -> bool:
            for sampler, _ in self.samplers:
                sampler.collect(self.batch, lambda _: 30 * MIB)
            found.extend(s for s in self.batch.samples if s.device == device and fits(s))
            self.batch.samples.clear()
            return bool(found)

        wait_for(look)
        return found[0]

    def becomes(self, sampler: GpuSampler, device: str, kind: str) -> None:
        def look() -> bool:
            sampler.collect(self.batch, lambda _: 0)
            condition = sampler.condition(device)
            return (condition.kind if condition else "") == kind

        wait_for(look)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    for sampler, library in bench.samplers:
        library.release.set()
        sampler.stop()
        assert library.closed == library.opened


def test_readings_of_two_cards(bench: Bench) -> None:
    """CUDA counts them the other way round: they are joined by UUID."""
    first, second = cards()
    first.processes, second.processes = {7: 50 * MIB, 999999: 20 * MIB}, {8: 40 * MIB}
    first.throttle = 0x20
    rate, start = 10e9, time.monotonic()
    first.counters = lambda: (int((time.monotonic() - start) * rate), 0)
    bench.start(FakeNvml(second, first), {"cuda:0": FIRST, "cuda:1": SECOND})
    found = bench.sample("cuda:0", lambda s: s.pcie_rx is not None and s.utilisation is not None)
    assert (found.memory_used, found.memory_reserved, found.memory_other) == (30 * MIB, 20 * MIB, 50 * MIB)
    assert (found.memory_capacity, found.utilisation, found.power) == (1000 * MIB, 0.4, 350.5)
    assert (found.clock, found.temperature, found.throttle) == (1980.0, 61.0, "software-thermal")
    assert found.pcie_rx is not None
    assert 0.2 * rate < found.pcie_rx < 5 * rate
    assert bench.sample("cuda:1").memory_other == 160 * MIB


def test_without_counters_there_are_no_rates(bench: Bench) -> None:
    first, _ = cards()
    first.missing = {"nvmlDeviceGetFieldValues", "nvmlDeviceGetPowerUsage"}
    bench.start(FakeNvml(first), {"cuda:0": FIRST})
    for _ in range(3):
        found = bench.sample("cuda:0")
        assert found.pcie_rx is found.pcie_tx is found.power is None
        assert found.memory_capacity == 1000 * MIB


def test_a_card_that_is_lost_and_numbers_that_shift(bench: Bench, expected_logs: ExpectedLogs) -> None:
    first, second = cards()
    first.lost_after = 100
    library = FakeNvml(first, second)
    sampler = bench.start(library, {"cuda:0": FIRST, "cuda:1": SECOND})
    expected_logs(r"cuda:0 \(GPU-aaaa\): no readings: NVML says that the GPU is lost \(15\)")
    bench.sample("cuda:0")
    bench.becomes(sampler, "cuda:0", "lost")
    library.cards.remove(first)  # the other one is number 0 now
    assert bench.sample("cuda:1").memory_capacity == 1000 * MIB
    assert sampler.condition("cuda:1") is None
    (incident,) = bench.batch.incidents
    assert (incident.device, incident.kind) == ("cuda:0", "device-lost")
    assert incident.message.startswith("cuda:0 (GPU-aaaa) has gone")
    condition = sampler.condition("cuda:0")
    assert condition is not None
    assert condition.since_ns == incident.time_ns
    first.lost_after = None
    library.cards.append(first)
    bench.becomes(sampler, "cuda:0", "")
    assert bench.sample("cuda:0").utilisation == 0.4


def test_a_card_that_is_not_listed_any_more(bench: Bench, expected_logs: ExpectedLogs) -> None:
    first, second = cards()
    library = FakeNvml(first, second)
    sampler = bench.start(library, {"cuda:0": FIRST})
    bench.sample("cuda:0")
    expected_logs(r"no readings: ")
    first.lost_after = 0
    library.cards.remove(first)
    bench.becomes(sampler, "cuda:0", "lost")
    wait_for(lambda: "does not list the card" in str(sampler.condition("cuda:0")))


@pytest.mark.parametrize(("code", "words"), [(12, "libnvidia-ml.so.1 was not found"), (18, "of different versions")])
def test_nvml_that_does_not_start_is_told_once(
    bench: Bench, expected_logs: ExpectedLogs, caplog: pytest.LogCaptureFixture, code: int, words: str
) -> None:
    first, _ = cards()
    library = FakeNvml(first, start=code)
    expected_logs(words)
    sampler = bench.start(library, {"cuda:0": FIRST})
    bench.becomes(sampler, "cuda:0", "unreadable")
    wait_for(lambda: library.starts > 3)
    sampler.collect(bench.batch, lambda _: 0)
    assert not bench.batch.samples
    assert [r.getMessage() for r in caplog.records if words in r.getMessage()] == [
        f"cuda:0 (GPU-aaaa): no readings: {sampler.condition('cuda:0').reason}"  # type: ignore[union-attr]
    ]
    library.start = 0
    assert bench.sample("cuda:0").power == 350.5


def test_every_call_fails_after_a_while(bench: Bench, expected_logs: ExpectedLogs) -> None:
    first, _ = cards()
    library = FakeNvml(first)
    sampler = bench.start(library, {"cuda:0": FIRST})
    bench.sample("cuda:0")
    expected_logs("no readings: ")
    library.broken = UNKNOWN
    bench.becomes(sampler, "cuda:0", "unreadable")
    bench.batch.samples.clear()
    sampler.collect(bench.batch, lambda _: 0)
    assert not bench.batch.samples  # nothing, rather than zeros
    library.broken = 0
    bench.becomes(sampler, "cuda:0", "")


def test_a_call_that_hangs_stops_only_its_card(bench: Bench, expected_logs: ExpectedLogs) -> None:
    first, second = cards()
    hanging, other = FakeNvml(first), FakeNvml(second)
    stuck = bench.start(hanging, {"cuda:0": FIRST}, stalled_seconds=0.1)
    bench.start(other, {"cuda:1": SECOND})
    bench.sample("cuda:0")
    expected_logs(r"cuda:0 \(GPU-aaaa\): no readings: NVML does not answer")
    hanging.release.clear()
    bench.becomes(stuck, "cuda:0", "stalled")
    before = time.monotonic()
    stuck.collect(bench.batch, lambda _: 0)
    assert time.monotonic() - before < 5
    assert bench.sample("cuda:1").power == 350.5
    hanging.release.set()
    bench.becomes(stuck, "cuda:0", "")


def test_the_cards_to_watch_change(bench: Bench) -> None:
    first, second = cards()
    library = FakeNvml(first, second)
    sampler = bench.start(library, {"cuda:0": FIRST})
    bench.sample("cuda:0")
    thread = sampler._cards["cuda:0"]
    sampler.watch({"cuda:0": Target("GPU-aaaa", FIRST.bus_id, (99,))})  # its process was started again
    assert sampler._cards["cuda:0"] is thread
    assert thread.target.pids == (99,)
    sampler.watch({"cuda:0": SECOND})  # CUDA_VISIBLE_DEVICES changed
    assert sampler._cards["cuda:0"] is not thread
    assert bench.sample("cuda:0", lambda s: s.memory_capacity is not None).device == "cuda:0"
    sampler.watch({})
    assert sampler.condition("cuda:0") is None
    thread.join(5)
    assert not thread.is_alive()


MEMORY = Memory(1000, 500, 490, 10)


@pytest.mark.parametrize(
    ("processes", "own"),
    [
        ({7: 60, 999999: 5}, 60),
        ({7: None}, None),
        (None, None),
        ({}, None),  # a process that must be there, and is not: the numbers are not to be trusted
        ({999999: 50}, 50),  # the one that is not visible here is the engine's
        ({999999: 50, 999998: 60}, None),
        ({999999: None}, None),
    ],
)
def test_the_engines_own_bytes(processes: dict[int, int | None] | None, own: int | None) -> None:
    assert own_bytes(processes, [7], used=30) == own
    found = sample_of("cuda:0", Look(1, MEMORY, processes, NOTHING, None, None), [7], 30)
    assert found.memory_other == (None if own is None else 500 - own)
    assert found.memory_reserved == (None if own is None else own - 30)


def test_before_the_engine_holds_anything() -> None:
    assert own_bytes({999999: 50}, [os.getpid()], used=0) == 0
    found = sample_of("cuda:0", Look(1, None, None, Reading(0.5, None, None, None, ""), None, None), [], 0)
    assert (found.memory_used, found.memory_other, found.memory_capacity) == (0, None, None)
    assert (found.utilisation, found.power, found.throttle) == (0.5, None, "")
