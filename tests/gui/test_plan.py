"""The memory plan: in words, as a bar, and asked for while settings are changed."""

from dataclasses import replace

import pytest
from pytestqt.qtbot import QtBot

from cuzk_engine.client import ProcessState, SettingChange
from cuzk_engine.client.types import MemoryPlanInfo
from cuzk_gui.models import plan as model
from cuzk_gui.models.plan import PlanState
from cuzk_gui.models.process import Tone
from cuzk_gui.theme import Theme
from cuzk_gui.widgets.controls import Segmented
from cuzk_gui.widgets.plan_view import PlanView
from cuzk_gui.window import MainWindow
from tests.gui.fakes import GIB, FakeEngine
from tests.gui.plans import memory_plan

WAIT_MS = 8000


class TestWords:
    def test_all_fit(self) -> None:
        plan = memory_plan(peak=2 * GIB, workers=2, free=6 * GIB)
        assert model.sentence(plan) == ("all 2 workers fit, 2.00 GiB left", Tone.QUIET)
        assert model.headline(plan) == "4.00 of 6.00 GiB free"

    def test_degraded(self) -> None:
        plan = memory_plan(peak=round(6.1 * GIB), workers=2, free=round(11.2 * GIB), capacity=16 * GIB)
        text, tone = model.sentence(plan)
        assert text == "pre-staging falls back to locked: 2 × 6.10 GiB do not fit into 11.2 GiB"
        assert tone is Tone.WARN

    def test_degraded_and_still_not_all_at_once(self) -> None:
        plan = memory_plan(peak=6 * GIB, workers=3, free=7 * GIB, capacity=16 * GIB)
        text, tone = model.sentence(plan)
        assert "3 × 6.00 GiB do not fit" not in text  # the mode that was asked for is kept: one at a time fits
        assert text == "not all 3 workers fit at once (18.0 GiB): those that do not fit wait"
        assert tone is Tone.WARN

    def test_not_now_and_never(self) -> None:
        text, tone = model.sentence(memory_plan(peak=7 * GIB, free=6 * GIB))
        assert (text, tone) == (
            "does not fit now: one partition needs 7.00 GiB, 6.00 GiB are free; it waits",
            Tone.WARN,
        )
        text, tone = model.sentence(memory_plan(peak=9 * GIB, free=6 * GIB))
        assert (text, tone) == ("cannot run: one partition needs 9.00 GiB, the device has 8.00 GiB", Tone.BAD)

    def test_the_machine_s_memory_is_too_small(self) -> None:
        plan = memory_plan(peak=2 * GIB, workers=2, free=6 * GIB)
        choices = tuple(replace(choice, fits=False, all_fit=False) for choice in plan.choices)
        plan = replace(plan, fits=False, choices=choices, chosen=-1, host_peak=2 * GIB, host_capacity=GIB // 2)
        text, tone = model.sentence(plan)
        assert text == (
            "cannot run: one partition needs 1.00 GiB of the machine's memory, the engine has 512.0 MiB: "
            "raise memory.total_budget"
        )
        assert tone is Tone.BAD
        assert {way[3] for way in model.ways(plan)} == {"the machine's memory is short"}

    def test_without_choices(self) -> None:
        """An engine that only says the peak."""
        plan = MemoryPlanInfo("cpu", 8 * GIB, 2 * GIB, True, {"msm": 2 * GIB}, free=6 * GIB)
        assert model.sentence(plan) == ("one worker fits, 4.00 GiB left", Tone.QUIET)


class TestBar:
    def test_parts_add_up(self) -> None:
        plan = memory_plan(peak=2 * GIB, workers=2, free=5 * GIB, others=GIB)
        bar = model.bar(plan)
        assert [p.name for p in bar.planned] == ["matrices", "witness", "abc", "ntt", "msm", "workers"]
        assert bar.needed == pytest.approx(4 * GIB, abs=8)
        assert {p.name: p.bytes for p in bar.taken} == {"reserve": 2 * GIB, "processes": GIB}
        assert bar.over == 0
        assert bar.scale == 8 * GIB

    def test_too_much_goes_beyond_the_capacity(self) -> None:
        bar = model.bar(memory_plan(peak=4 * GIB, workers=2, free=5 * GIB))
        assert bar.over == pytest.approx(GIB, abs=2 * GIB)
        bar = model.bar(replace(memory_plan(peak=7 * GIB, workers=1, free=5 * GIB), total=7 * GIB))
        assert bar.over == pytest.approx(2 * GIB, abs=8)
        assert bar.scale == 8 * GIB + bar.over

    def test_an_unknown_purpose_has_its_part(self) -> None:
        plan = replace(memory_plan(), by_purpose={"plasma": GIB})
        assert model.bar(plan).planned[0].name == "plasma"

    def test_the_line_in_the_chart_stands_on_what_stays(self) -> None:
        plan = replace(memory_plan(peak=2 * GIB, workers=1), by_purpose={"msm": 2 * GIB})
        assert model.chart_level(plan, {"srs": GIB, "msm": GIB}) == 3 * GIB
        counted = replace(plan, by_purpose={"msm": GIB, "srs": GIB})
        assert model.chart_level(counted, {"srs": GIB}) == 2 * GIB


class TestView:
    def test_states(self, theme: Theme, qtbot: QtBot) -> None:
        view = PlanView(theme, "cpu")
        qtbot.addWidget(view)
        assert view.sentence == model.NO_CIRCUIT
        view.show_plan(PlanState(memory_plan(), circuit="merkle10"))
        assert view.title == "Plan · merkle10"
        assert view.sentence.startswith("all 2 workers fit")
        assert "One partition, at its peak: 2.00 GiB" in view.toolTip()
        view.show_plan(PlanState(memory_plan(workers=3), circuit="merkle10", what_if="workers → 3"))
        assert view.title == "If workers → 3"
        view.show_plan(PlanState(said="the key is gone", circuit="merkle10"))
        assert view.bar.isHidden()
        assert view.sentence == "the key is gone"


@pytest.fixture
def engine() -> FakeEngine:
    made = FakeEngine(ProcessState.READY)
    made.free = 6 * GIB
    return made


class TestLive:
    def _view(self, window: MainWindow) -> PlanView:
        return window.devices.cards["cpu"].plan

    def _with_circuits(self, window: MainWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        engine.register("/keys/old.zkey", "old")
        engine.register("/keys/new.zkey", "new")
        window.controller.refresh_circuits()
        qtbot.waitUntil(lambda: self._view(window).title == "Plan · new", timeout=WAIT_MS)

    def test_without_a_circuit_it_says_so(self, window: MainWindow, qtbot: QtBot) -> None:
        qtbot.waitUntil(lambda: self._view(window).sentence == model.NO_CIRCUIT, timeout=WAIT_MS)
        assert not window.scene.plan

    def test_the_last_used_circuit_else_the_chosen_one(
        self, window: MainWindow, engine: FakeEngine, qtbot: QtBot
    ) -> None:
        self._with_circuits(window, engine, qtbot)
        window.live.circuits.chosen.emit("c0")
        qtbot.waitUntil(lambda: self._view(window).title == "Plan · old", timeout=WAIT_MS)
        assert engine.plans_asked[-1][0] == "c0"

    def test_it_follows_a_change_before_and_after_it_is_made(
        self, window: MainWindow, engine: FakeEngine, qtbot: QtBot
    ) -> None:
        self._with_circuits(window, engine, qtbot)
        assert self._view(window).amount == "4.00 of 6.00 GiB free"
        stepper = window.devices.cards["cpu"].workers
        stepper.looked_at.emit(3)
        qtbot.waitUntil(lambda: self._view(window).title == "If 3 workers", timeout=WAIT_MS)
        assert self._view(window).amount == "6.00 of 6.00 GiB free"
        assert engine.changes == []  # only looked at
        assert window.scene.plan is not None
        assert window.scene.plan < 5.5 * GIB  # the chart keeps what is set
        stepper.looked_at.emit(0)
        qtbot.waitUntil(lambda: self._view(window).title == "Plan · new", timeout=WAIT_MS)
        stepper.stepped.emit(4)
        qtbot.waitUntil(
            lambda: self._view(window).sentence.startswith("pre-staging falls back to locked: 4 × 2.00 GiB"),
            timeout=WAIT_MS,
        )

    def test_a_choice_under_the_pointer_is_planned(self, window: MainWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        self._with_circuits(window, engine, qtbot)
        control = window.devices.rows["pipeline.prestage"].control
        assert isinstance(control, Segmented)
        control.looked_at.emit("locked")
        qtbot.waitUntil(lambda: self._view(window).title == "If pre-staging → locked", timeout=WAIT_MS)
        assert engine.plans_asked[-1][2] == (SettingChange("pipeline.prestage", "locked"),)
        control.looked_at.emit("")
        qtbot.waitUntil(lambda: self._view(window).title == "Plan · new", timeout=WAIT_MS)

    def test_a_burst_of_looks_asks_once(self, window: MainWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        self._with_circuits(window, engine, qtbot)
        before = len(engine.plans_asked)
        for value in (3, 4, 5, 6):
            window.devices.cards["cpu"].workers.looked_at.emit(value)
        qtbot.waitUntil(lambda: self._view(window).title == "If 6 workers", timeout=WAIT_MS)
        assert len(engine.plans_asked) == before + 1

    def test_a_plan_that_fails_is_said(self, window: MainWindow, engine: FakeEngine, qtbot: QtBot, monkeypatch) -> None:
        from cuzk_engine.client import CuzkError

        def fail(*_args: object) -> None:
            raise CuzkError("/keys/new.zkey: not found")

        monkeypatch.setattr(engine, "plan", fail)
        engine.register("/keys/new.zkey", "new")
        window.controller.refresh_circuits()
        qtbot.waitUntil(lambda: self._view(window).sentence == "/keys/new.zkey: not found", timeout=WAIT_MS)
        assert self._view(window).bar.isHidden()
        assert self._view(window)._said.property("role") == "warn"

    def test_without_the_engine_there_is_no_plan(self, window: MainWindow, engine: FakeEngine, qtbot: QtBot) -> None:
        self._with_circuits(window, engine, qtbot)
        engine.set_state(ProcessState.STOPPED)
        qtbot.waitUntil(lambda: self._view(window).isHidden(), timeout=WAIT_MS)
