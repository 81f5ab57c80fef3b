"""What --vary understands, and the order in which rounds run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.bench.results import ProofTime, Round, Use
from cuzk_engine.bench.schedule import TURNS, Load, measure, passes
from cuzk_engine.bench.variations import AS_CONFIGURED, MAX_VARIATIONS, Variation, parse_variations
from cuzk_engine.errors import UsageError


def test_every_combination_the_last_name_fastest() -> None:
    found = parse_variations(["workers=1,2", "prestage=off,ahead"])
    assert [each.name for each in found] == [
        "workers=1 prestage=off",
        "workers=1 prestage=ahead",
        "workers=2 prestage=off",
        "workers=2 prestage=ahead",
    ]
    assert found[1].settings == (("gpus.gpu_workers_per_device", "1"), ("pipeline.prestage", "ahead"))
    assert found[1].value("pipeline.prestage") == "ahead"
    assert found[1].value("srs.residency") is None


def test_nothing_to_vary_is_one_variation() -> None:
    assert parse_variations([]) == [AS_CONFIGURED]


def test_whole_keys_and_switches() -> None:
    (first, second) = parse_variations(["pipeline.double_buffer=on,off"])
    assert first.settings == (("pipeline.double_buffer", "true"),)
    assert second.name == "double_buffer=false"
    assert parse_variations(["scheduler.aging=2m"])[0].settings == (("scheduler.aging", "2m"),)
    assert parse_variations(["double-buffer=off"])[0].settings == (("pipeline.double_buffer", "false"),)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["workers"], '"workers" is not understood, expected a setting and its values, as in workers=1,2'),
        (["workers="], '"workers=" is not understood'),
        (["wokers=1"], "'wokers' is no setting that can change while the engine runs; did you mean 'workers'?"),
        (["daemon.listen=x"], "'daemon.listen' is no setting that can change while the engine runs"),
        (["workers=1", "gpus.gpu_workers_per_device=2"], "gpus.gpu_workers_per_device is given twice"),
        (["workers=1,1"], "workers has the value 1 twice"),
        (["workers=9"], "gpus.gpu_workers_per_device is 9: expected a whole number from 1 to 8"),
        (["prestage=early"], 'expected one of "off", "locked", "ahead"'),
        (["workers=1,,2"], "expected a whole number"),
        (
            ["workers=1,2,3,4,5,6,7,8", "prestage=off,locked,ahead", "evaluate=auto,host,device"],
            f"72 variations, expected at most {MAX_VARIATIONS}",
        ),
    ],
)
def test_what_cannot_be_meant_is_named(words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as fault:
        parse_variations(words)
    assert str(fault.value).startswith("--vary: ")
    assert message in str(fault.value)


@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 5))
def test_rounds_hold_all_proofs_and_lose_none(count: int, concurrency: int, n_variations: int) -> None:
    load = Load(count, min(concurrency, count), 0)
    rounds = list(passes(n_variations, load))
    for which in range(n_variations):
        sizes = [size for variation, size in rounds if variation == which]
        assert sum(sizes) == count
        assert max(sizes) - min(sizes) <= 1
        assert len(sizes) == 1 or load.concurrency == 1 or min(sizes) >= TURNS * load.concurrency


@given(st.integers(1, 4), st.integers(2, 64))
def test_a_drift_of_the_machine_falls_on_all_alike(n_variations: int, count: int) -> None:
    """Where the number of rounds is even, the mean place of every variation's rounds is the same."""
    load = Load(count - count % 2, 1, 0)
    order = [which for which, _ in passes(n_variations, load)]
    if load.rounds % 2 == 0:
        places = [sum(at for at, which in enumerate(order) if which == each) for each in range(n_variations)]
        assert len(set(places)) == 1


class Recorder:
    """An engine that proves nothing and remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self.checked: list[str] = []

    def check(self, variation: Variation) -> None:
        self.checked.append(variation.name)

    def describe(self) -> dict[str, str]:
        return {}

    def notes(self, variations: list[Variation]) -> list[str]:
        return []

    def run(self, variation: Variation, count: int, concurrency: int) -> Round:
        self.calls.append((variation.name, count, concurrency))
        return Round(tuple(ProofTime(1.0, {}) for _ in range(count)), 2.0 * count, Use(0.5, {}, None), 10, 20)


def test_warm_up_runs_first_and_does_not_count() -> None:
    engine, drawn = Recorder(), []
    variations = [Variation("a"), Variation("b")]
    series = measure(engine, variations, Load(13, 2, 3), lambda phase, done: drawn.append((phase, done)))
    assert engine.checked == ["a", "b"]
    assert engine.calls == [("a", 3, 2), ("b", 3, 2), ("a", 7, 2), ("b", 7, 2), ("b", 6, 2), ("a", 6, 2)]
    assert [len(each.proofs) for each in series] == [13, 13]
    assert drawn[0] == ("warm-up, a", 0.0)
    shares = [done for _, done in drawn]
    assert shares == sorted(shares)
    assert shares[-1] < 1
