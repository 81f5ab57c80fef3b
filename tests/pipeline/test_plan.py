"""What a plan reserves covers every stage, with and without what is there, and no more than that."""

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cuzk_engine.curves import CURVES
from cuzk_engine.devices.base import CancelToken, DeviceInfo, Need, Owner
from cuzk_engine.devices.ledger import Ledger
from cuzk_engine.devices.pages import block_bytes
from cuzk_engine.events import Purpose
from cuzk_engine.groth16.plan import CircuitSizes, Query
from cuzk_engine.pipeline.modes import Evaluation, PipelineSettings, Prestage, Residency, Work, modes
from cuzk_engine.pipeline.plan import EVALUATE, MATRICES, TABLE, TRANSFORM, plan_partition, steady_plan


class Needs:
    """Of an imaginary device: all different, so that no mistake cancels another."""

    def __init__(self, parallel=1, page_locks=False):
        self.info = DeviceInfo("cuda:0", "cuda", "", 1, "", page_locks=page_locks, parallel_launches=parallel)

    def msm_need(self, curve, group, n, present, *, resident):
        size = curve.g1_bytes * group
        return Need(7 * n + 1000, 0, present * size) if resident else Need(7 * n + 1000, n * size)

    def evaluate_need(self, curve, coefficients, n_vars, domain, *, prepared=False, general=None):
        return Need(32 * n_vars) if prepared else Need(300 * coefficients, 0, 41 * coefficients)

    def table_bytes(self, curve, log_n):
        return 33 << log_n


NEEDS = Needs()

SIZES = st.builds(
    lambda curve, n_vars, share, log_domain, present: CircuitSizes(
        curve,
        n_vars,
        int((n_vars - 1) * share),
        1 << log_domain,
        3 * n_vars,
        None if present is None else tuple(int(n_vars * present) for _ in Query),
    ),
    st.sampled_from(CURVES), st.integers(2, 5000), st.floats(0, 1), st.integers(1, 14), st.none() | st.floats(0, 1),
)  # fmt: skip
PLANS = st.tuples(SIZES, st.integers(0, 40), st.sampled_from(Prestage), st.booleans()).map(
    lambda t: (Work(t[0]), modes(PipelineSettings(prestage=t[2], double_buffer=t[3]), "cuda", Work(t[0]), floor=64))
)


@given(plans=PLANS, index=st.integers(0, 60), found=st.sets(st.sampled_from([TABLE, MATRICES, *Query])))
def test_a_reservation_covers_every_stage(plans, index, found):
    """Played on a ledger with exactly the memory that was planned, together with two workers that hold their own."""
    work, choices = plans
    mode = choices[index % len(choices)]
    steady = steady_plan(work, mode, NEEDS)
    there = {name: 10 + len(name) for name in found & steady.found}
    plan = plan_partition(work, mode, NEEDS, there)
    held, serial = plan.reservation
    capacity = sum(there.values()) + held + serial + 2 * plan.own
    assert capacity == plan.together(3)
    ledger, me = Ledger("cuda:0", max(1, capacity)), Owner("me", 0, 0)
    ledger.take(sum(there.values()), Purpose.SRS, Owner())
    for worker in (1, 2):
        ledger.reserve(plan.own, serial, Owner("other", 0, worker), CancelToken())
    with ledger.reserve(held, serial, me, CancelToken()) as reservation:
        if mode.is_ahead:
            grant = ledger.take(plan.inputs, Purpose.ABC, me)
            assert reservation.serial_used == 0
            ledger.give_back(grant)
        for stage in plan.stages:
            used = ledger.take(stage.total, Purpose.MSM, me)
            for nbytes in stage.loaded.values():
                ledger.take(nbytes, Purpose.SRS, Owner(), out_of=reservation)
            ledger.give_back(used)
        assert ledger.use().peak <= plan.peak
        assert reservation.serial_used == 0
    assert ledger.use().used == plan.stays


@given(plans=PLANS)
def test_smaller_modes_take_no_more(plans):
    work, choices = plans
    last = None
    for mode in choices:
        plan = plan_partition(work, mode, NEEDS)
        same_base = last is not None and last.mode.base == mode.base
        if same_base:
            assert plan.peak == last.peak
            assert plan.own <= last.own
            assert plan.host_bytes <= last.host_bytes
        last = plan
        assert sum(plan.by_purpose.values()) == plan.peak
        assert plan.peak == max(sum(column.values()) for column in plan.columns.values())
        assert plan.together(1) >= plan.peak
        assert plan.together(3) == plan.together(1) + 2 * plan.own
        later = steady_plan(work, mode, NEEDS)
        assert later.missing == 0
        assert later.stays == plan.stays == sum(later.there.values())


def test_launches_beside_each_other():
    """Each has its scratch; points that travel are there from one launch before theirs until they are collected."""
    curve = CURVES[0]
    work = Work(CircuitSizes(curve, 101, 0, 128, 300))
    sizes = {query: work.sizes.query_length(query) for query in Query}
    settings = PipelineSettings(evaluate=Evaluation.DEVICE, residency=Residency.HOST)
    scratch = {query: 7 * n + 1000 for query, n in sizes.items()}
    transit = {query: n * curve.g1_bytes * query.group for query, n in sizes.items()}
    queries = list(Query)
    for parallel, double_buffer in ((1, False), (1, True), (2, False), (2, True), (3, True)):
        mode = modes(replace(settings, double_buffer=double_buffer), "cuda", work)[0]
        plan = plan_partition(work, mode, Needs(parallel))
        stages = {stage.name: stage.used for stage in plan.stages}
        for name in (EVALUATE, TRANSFORM):
            assert stages[name][Purpose.SRS] == transit[Query.H]
        under_way, kept = (parallel, max(2, parallel)) if double_buffer else (1, 1)
        for k, query in enumerate(queries):
            beside = queries[max(0, k - under_way + 1) : k + 1]
            there = queries[max(0, k - kept + 1) : k + 2]
            assert stages[query][Purpose.MSM] == sum(scratch[q] for q in beside)
            assert stages[query][Purpose.SRS] == sum(transit[q] for q in there)
        assert plan.results == kept * curve.g2_bytes


def test_a_last_launch_beside_the_next_worker():
    """With room the lock is given up while it runs: it is there until the next worker's second launch takes its
    place."""
    work = Work(CircuitSizes(CURVES[0], 101, 0, 128, 300))
    sizes = {query: work.sizes.query_length(query) for query in Query}
    for residency, prestage in itertools.product((Residency.HOST, Residency.DEVICE), Prestage):
        mode = modes(PipelineSettings(prestage, evaluate=Evaluation.DEVICE, residency=residency), "cuda", work)[0]
        plan = steady_plan(work, mode, Needs(2))
        scratch = 7 * sizes[Query.L] + 1000
        transit = 0 if mode.is_resident else sizes[Query.L] * CURVES[0].g1_bytes
        stays, used = sum(plan.there.values()), {stage.name: stage.total for stage in plan.stages}
        begins = [used[EVALUATE] + scratch, used[TRANSFORM] + scratch, used[Query.H] + scratch, used[Query.A]]
        handed_over = stays + max(begins) + transit + plan.results
        assert plan.most(1) == plan.together(1)
        for workers in (2, 3):
            beside = handed_over + (workers - 2) * plan.own
            assert plan.most(workers) == max(plan.together(workers), beside)
        if mode.is_resident and not mode.is_ahead:
            assert plan.most(2) > plan.together(2)
        single = replace(mode, double_buffer=False)
        for other in (plan_partition(work, single, Needs(2)), plan_partition(work, mode, Needs(1))):
            assert other.most(2) == other.together(2)


def test_host_memory():
    work = Work(CircuitSizes(CURVES[0], 100, 1, 128, 300))
    for mode in modes(PipelineSettings(), "cuda", work):
        plan = plan_partition(work, mode, Needs(page_locks=True))
        locked = mode.prestage is not Prestage.OFF
        assert plan.host.get(Purpose.ABC, 0) == (0 if mode.on_device else 3 * (block_bytes(4096) if locked else 4096))
        assert plan.host.get(Purpose.WITNESS, 0) == (block_bytes(3200) if locked else 0)
        assert Purpose.SRS not in plan.host
        assert Purpose.WITNESS not in plan_partition(work, mode, NEEDS).host
    converting = Work(work.sizes, has_matrices=False, converts=True)
    for double_buffer in (True, False):
        mode = modes(PipelineSettings(double_buffer=double_buffer, batch=64), "cuda", converting)[0]
        largest = 64 * CURVES[0].g2_bytes
        assert plan_partition(converting, mode, NEEDS).host[Purpose.SRS] == (2 if double_buffer else 1) * largest
