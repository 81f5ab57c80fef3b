"""The plan as people and programs are told it, and the advice after a failure."""

import itertools
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from cuzk_engine.client.types import MemoryPlanInfo, PlanChoice
from cuzk_engine.devices.pages import block_bytes
from cuzk_engine.errors import FormatError
from cuzk_engine.formats.source import SourceFile
from cuzk_engine.keys import CheckedKeys, KeyCache
from cuzk_engine.pipeline.modes import Evaluation, PipelineSettings, Prestage, Residency, modes
from cuzk_engine.pipeline.report import Choice, PlanReport, choose, plan_report, planned, remedies, work_of
from cuzk_engine.settings import WORKERS_KEY
from tests.support.bench import GIB, Bench
from tests.support.card import Card
from tests.support.cases import BROKEN, CASES, case

ITEM = case("bn128", "merkle10")


def report(card, settings=PipelineSettings(), workers=2):  # noqa: B008
    return plan_report(card, work_of(ITEM.path("circuit.zkey")), settings, workers)


def test_fields_are_those_of_the_client():
    """Without knowing it."""
    assert {f.name for f in fields(PlanReport)} == {f.name for f in fields(MemoryPlanInfo)}
    assert [f.name for f in fields(Choice)] == [f.name for f in fields(PlanChoice)]


def test_what_a_card_is_told():
    card = Card(GIB, context=5000)
    card.taken_by_others = 1 << 20
    found = report(card)
    assert (found.device, found.workers, found.others) == ("cpu", 2, 1 << 20)
    assert found.capacity == GIB
    assert found.free == GIB - (1 << 20)
    assert found.fits
    assert found.chosen == 0
    assert found.choices[0].text == ""
    assert sum(found.by_purpose.values()) == found.peak == found.choices[0].peak
    assert found.by_purpose["context"] == 5000
    assert found.peak == max(sum(stage.values()) for stage in found.stages.values())
    assert list(found.stages)[:2] == ["evaluate", "transform"]
    assert found.total > found.peak
    assert (found.host_peak, found.host_capacity) == (2 * block_bytes(92352), card.host.budget)
    assert card.memory().used == 5000


def test_nothing_is_computed_twice():
    """A plan is asked for every few seconds while its partitions run. What changes is seen."""
    card = Card(GIB, context=5000)
    first = report(card)
    assert report(card) is first
    card.taken_by_others = 1 << 20
    changed = report(card)
    assert (changed.others, changed.free) == (1 << 20, GIB - (1 << 20))
    assert report(card, workers=1).total < first.total
    card.taken_by_others = 0
    assert report(card) == first


def test_the_plan_told_is_the_plan_kept():
    """Two partitions one after the other, in the mode that was told, with the peak that was told."""
    for settings in (PipelineSettings(), PipelineSettings(Prestage.OFF, residency=Residency.HOST)):
        card = Card(GIB, context=5000)
        told = report(card, settings, workers=1)
        bench = Bench(device=card)
        outcomes = [bench.prove(ITEM, settings) for _ in range(2)]
        assert outcomes[0].mode.settings() == told.choices[told.chosen].settings
        assert max(outcome.peak_bytes for outcome in outcomes) + 5000 == told.peak
        assert told.peak / 1.1 <= card.memory().peak <= told.peak


def test_choices_fall_until_one_fits():
    card = Card(GIB)
    everything = report(card)
    for choice in everything.choices:
        found = report(Card(choice.peak))
        assert found.fits
        assert found.peak <= choice.peak
        assert found.choices[found.chosen].fits
    smallest = min(choice.peak for choice in everything.choices)
    nothing = report(Card(smallest - 1))
    assert (nothing.fits, nothing.chosen) == (False, -1)
    assert not any(choice.fits for choice in nothing.choices)
    assert nothing.peak == smallest


def test_many_workers_are_told_what_they_get_together():
    card = Card(report(Card(GIB), workers=1).peak)
    found = report(card, workers=8)
    assert found.choices[found.chosen].settings["pipeline.prestage"] != "ahead"
    assert found.choices[found.chosen].all_fit
    totals = [report(Card(GIB), workers=n).total for n in range(1, 5)]
    steps = {after - before for before, after in itertools.pairwise(totals)}
    assert len(steps) == 1


def test_the_total_is_what_they_take_of_the_room():
    """More than they need where there is more; what they need is enough."""
    settings = PipelineSettings(Prestage.LOCKED, evaluate=Evaluation.HOST, residency=Residency.DEVICE)
    roomy = report(Card(GIB, parallel=2), settings)
    (mode, *_), card = modes(settings, "card", work_of(ITEM.path("circuit.zkey"))), Card(GIB, parallel=2)
    needed = planned(work_of(ITEM.path("circuit.zkey")), mode, card).together(2)
    assert needed < roomy.total
    for capacity, total in ((needed, needed), (needed + 1000, needed + 1000), (roomy.total + 1000, roomy.total)):
        found = report(Card(capacity, parallel=2), settings)
        assert (found.chosen, found.total, found.choices[0].all_fit) == (0, total, True)
    assert not report(Card(needed - 1, parallel=2), settings).choices[0].all_fit


def test_choose():
    def choice(fits, all_fit):
        return Choice({}, "", 0, 0, fits, all_fit)

    assert choose([choice(True, False), choice(True, True), choice(True, True)]) == 1
    assert choose([choice(False, False), choice(True, False)]) == 1
    assert choose([choice(False, False), choice(False, False)]) == 1


@pytest.mark.parametrize("item", CASES, ids=str)
def test_what_a_plan_needs_is_read_without_loading(item, tmp_path):
    checks = CheckedKeys(tmp_path)
    path = item.path("circuit.zkey")
    counted = work_of(path, checks)
    assert counted.sizes == KeyCache(checks).get(path).sizes
    assert not counted.converts
    assert work_of(path, checks) == counted


@pytest.mark.parametrize("name", ["good.wtns", "truncated.zkey"])
def test_no_key(name):
    with pytest.raises(FormatError, match=name):
        work_of(BROKEN / name if (BROKEN / name).exists() else Path(name))


def test_the_runner_reports():
    bench = Bench()
    found = bench.runner.report(ITEM.path("circuit.zkey"), workers=3)
    assert (found.device, found.workers, found.others) == ("cpu", 3, None)
    assert "context" not in found.by_purpose


def test_a_report_interns_no_names(monkeypatch):
    """A running engine asks every few seconds, and Python's table of interned strings grows with each."""
    bench, interned = Bench(), []
    before = bench.runner.report(ITEM.path("circuit.zkey"))
    path = str(ITEM.path("circuit.zkey"))
    monkeypatch.setattr(sys, "intern", lambda text: interned.append(text) or text)
    assert bench.runner.report(path) == before
    assert not interned


# ---- advice ----


def total(settings, workers):
    """An imaginary plan: 100 bytes, 20 a worker ahead, 30 for matrices, 40 for the key."""
    ahead = 20 * workers if settings.prestage is Prestage.AHEAD else 0
    matrices = 0 if settings.evaluate is Evaluation.HOST else 30
    key = 0 if settings.residency is Residency.HOST else 40
    return 100 + ahead + matrices + key


def advice(available, settings=PipelineSettings(), workers=3, kind="cuda"):  # noqa: B008
    found = remedies(settings, workers, available, kind, "cuda:1", total)
    return [(r.key, r.value, r.device, r.peak) for r in found]


def test_the_smallest_changes_come_first():
    assert total(PipelineSettings(), 3) == 230
    assert advice(225) == [
        ("pipeline.prestage", "locked", "", 170),
        (WORKERS_KEY, "2", "cuda:1", 210),
        (WORKERS_KEY, "1", "cuda:1", 190),
        ("pipeline.evaluate", "host", "", 200),
        ("srs.residency", "host", "", 190),
    ]
    assert advice(195) == [
        ("pipeline.prestage", "locked", "", 170),
        (WORKERS_KEY, "1", "cuda:1", 190),
        ("srs.residency", "host", "", 190),
    ]
    assert advice(100) == []


def test_what_is_set_already_is_not_advised():
    bare = PipelineSettings(Prestage.OFF, evaluate=Evaluation.HOST, residency=Residency.HOST)
    assert advice(100, bare, workers=1) == []
    assert advice(99, bare, workers=1, kind="cpu") == [("cpu.arena", "1MiB", "", 100)]


def test_advice_says_how_much():
    (first, *_) = remedies(PipelineSettings(), 1, 225, "cuda", "cuda:1", total)
    assert first.text == "Allocate a partition's buffers while the device is held, not before: 170 B instead of 190 B"


def test_the_least_memory_that_would_have_done_comes_before_that_of_all_workers():
    def large(settings, workers):
        return total(settings, workers) << 20

    def arenas(available, least):
        found = remedies(PipelineSettings(), 3, available << 20, "cpu", "cpu", large, least)
        return [(r.value, r.peak >> 20, r.text) for r in found if r.key == "cpu.arena"]

    assert arenas(2, (80 << 20) - 5) == [
        ("80MiB", 79, "Give the CPU device 80 MiB, room for one partition at a time in the smallest mode"),
        ("230MiB", 230, "Give the CPU device 230 MiB, room for all workers at once"),
    ]
    assert [value for value, _, _ in arenas(2, 230 << 20)] == ["230MiB"]
    assert [value for value, _, _ in arenas(90, 80 << 20)] == ["230MiB"]  # that was there
    assert [value for value, _, _ in arenas(2, None)] == ["230MiB"]


def test_a_key_that_is_loaded_is_not_read_again(monkeypatch, tmp_path):
    """But one in whose place is another."""
    bench = Bench(device=Card(GIB))
    path = tmp_path / "circuit.zkey"
    path.write_bytes(ITEM.path("circuit.zkey").read_bytes())
    before = bench.runner.report(path)
    bench.runner.keys.get(path)
    with monkeypatch.context() as patched:
        patched.setattr(SourceFile, "open", None)
        assert bench.runner.report(path) == before
    path.write_bytes(case("bn128", "chain_252").path("circuit.zkey").read_bytes())
    assert bench.runner.report(path).peak != before.peak
