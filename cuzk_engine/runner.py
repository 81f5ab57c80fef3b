"""Proofs on one device: evaluate → upload → H → five MSMs → assemble → verify.

``cuzk prove`` calls it in its own process, a device process from its worker threads. It knows devices by their
protocol, keys and witnesses by their formats; it knows no jobs' store, no sockets and no configuration file. How a
partition may run, what that takes and how it does is in `cuzk_engine.pipeline`.

The witness, r and s are secrets: they appear in no message and in no event.
"""

from __future__ import annotations

import secrets
import threading
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary

from cuzk_engine import native
from cuzk_engine.curves import Curve
from cuzk_engine.devices.base import Bytes, CancelToken, Device, EventSink, Owner
from cuzk_engine.devices.tables import TableCache
from cuzk_engine.errors import CuzkError, MemoryPlanError, OutOfDeviceMemoryError, ProofInvalidError
from cuzk_engine.events import Kind, Picture
from cuzk_engine.formats.proof import EncodedProof, Proof, PublicSignals
from cuzk_engine.formats.wtns import ValueCheck, Witness
from cuzk_engine.groth16.assemble import Assembly, Randomness, joined
from cuzk_engine.groth16.plan import QUERIES, CircuitSizes, CostModel, Query
from cuzk_engine.groth16.proving_key import ProvingKey
from cuzk_engine.keys import KeyCache
from cuzk_engine.pipeline import admission as hooks
from cuzk_engine.pipeline.admission import Admission, Admitted, Barrier, Gate, Sources
from cuzk_engine.pipeline.modes import (
    Evaluation,
    Mode,
    PipelineSettings,
    Prestage,
    Residency,
    Work,
    modes,
)
from cuzk_engine.pipeline.partition import Partition, freeze
from cuzk_engine.pipeline.plan import PartitionPlan, plan_partition, residents
from cuzk_engine.pipeline.progress import Progress, Run

if TYPE_CHECKING:
    from cuzk_engine.pipeline.report import PlanReport

__all__ = [
    "Admission", "Evaluation", "Mode", "PipelineSettings", "Prestage", "Progress", "ProofOutcome", "Residency",
    "Runner", "plan_for",
]  # fmt: skip

_DEFAULTS: Final = PipelineSettings()


class ProofOutcome(NamedTuple):
    """A verified proof. ``public_bytes``: the public signals, plain, 32 bytes each, little-endian; ``phases``: name →
    nanoseconds, in order; ``mode``: what was really done; ``peak_bytes``: of the plan."""

    proof: Proof
    public_bytes: bytes
    device: str
    phases: dict[str, int]
    mode: Mode
    peak_bytes: int

    @property
    def public(self) -> PublicSignals:
        return PublicSignals.from_bytes(self.public_bytes)

    @property
    def prestage(self) -> Prestage:
        return self.mode.prestage

    @property
    def verified_ms(self) -> float:
        return self.phases["verify"] / 1e6


class Runner:
    """Proves on one device. ``prove`` may be called from several worker threads at once.

    ``threads``: of the host's work for the device, 0: all; ``evaluation_threads``: of evaluations, 0: as many.
    ``sink`` gets the host's spans, allocations and incidents; the device has its own. ``randomness`` is for tests, and
    so are ``admission`` and ``barrier`` (see `pipeline.admission`); None: as the environment says.
    """

    def __init__(
        self,
        device: Device,
        keys: KeyCache,
        sink: EventSink | None = None,
        threads: int = 0,
        evaluation_threads: int = 0,
        randomness: Randomness = secrets.randbelow,
        admission: Admission | None = None,
        barrier: Barrier | None = None,
    ) -> None:
        self.device = device
        self.keys = keys
        self.host_memory = device.host
        if admission is None:
            admission, barrier = hooks.from_environment()
        self._sink = sink
        self._threads = threads
        self._evaluation_threads = evaluation_threads or threads
        self._randomness = randomness
        self._barrier = barrier
        self._tables = TableCache(device)
        self._gate = Gate(device, self._tables, admission)
        self._active = 0
        self._lock = threading.Lock()
        self._here = _Here()
        self._facts: WeakKeyDictionary[ProvingKey, _Facts] = WeakKeyDictionary()

    def plan(self, sizes: CircuitSizes, settings: PipelineSettings = _DEFAULTS) -> PartitionPlan:
        """What one proof of such a circuit needs on this device, in the mode that was asked for."""
        return plan_for(self.device, sizes, settings)

    @property
    def plans(self) -> bool:
        """Whether partitions are held against a memory plan; only a hook for demonstrations switches that off."""
        return self._gate.plans

    def report(self, key_path: Path | str, settings: PipelineSettings = _DEFAULTS, workers: int = 1) -> PlanReport:
        """What ``workers`` that prove with a key need on this device, in each mode; loads and allocates nothing.
        Raises FormatError."""
        from cuzk_engine.pipeline.report import plan_report, work_of

        key = self.keys.known(key_path)
        work = work_of(key_path, self.keys.checks) if key is None else self._facts_of(key).work
        return plan_report(self.device, work, settings, workers)

    def release_caches(self) -> None:
        """Frees the tables that no proof uses and forgets the keys."""
        self._tables.clear()
        self.keys.evict()

    def prove(
        self,
        key_path: Path | str,
        witness: Witness | Path | str,
        owner: Owner,
        settings: PipelineSettings = _DEFAULTS,
        progress: Progress | None = None,
        cancel: CancelToken | None = None,
        circuit: Path | str | None = None,
    ) -> ProofOutcome:
        """A verified proof that the witness satisfies the key's circuit.

        ``circuit``: the constraint system (r1cs or pce) of a bellperson key, which does not hold its own.

        Raises FormatError for a bad key or witness, OutOfDeviceMemoryError (MemoryPlanError before anything was
        allocated; else its ``reduced`` is that of the settings to try once more with, None where there is none),
        ProofInvalidError when the proof did not verify, CancelledError. Whatever happens, all memory is given back.
        """
        run = Run(self.device.info.id, owner, cancel or CancelToken(), self._sink, progress)
        self._here.run = run
        with self._lock:
            self._active += 1
        try:
            return self._prove(run, key_path, circuit, witness, settings)
        except ProofInvalidError as error:
            run.incident("verification-failed", str(error))
            raise
        finally:
            self._here.run = None
            with self._lock:
                self._active -= 1

    def restate(self, phase: str) -> bool:
        """Says what holds up the proof that this thread works on; False where it works on none."""
        run = self._here.run
        if run is not None:
            run.restate(phase)
        return run is not None

    def _prove(
        self,
        run: Run,
        key_path: Path | str,
        circuit: Path | str | None,
        witness: Witness | Path | str,
        settings: PipelineSettings,
    ) -> ProofOutcome:
        use = None
        try:
            with run.phase("load_key", Kind.LOAD_KEY):  # whose end may raise, too
                use = self.keys.use(key_path, run.cancel, run.loading, circuit)
            return self._prove_with(run, use.key, witness, settings)
        finally:
            if use is not None:
                use.end()

    def _prove_with(
        self, run: Run, key: ProvingKey, witness: Witness | Path | str, settings: PipelineSettings
    ) -> ProofOutcome:
        facts = self._facts_of(key)
        run.begin(facts.costs)
        with run.phase("read_witness", Kind.READ_WITNESS):
            if not isinstance(witness, Witness):
                witness = Witness.open(witness, check=self._value_check(run))
            key.check_witness(witness)
        run.advance(run.costs.read_witness())
        assembly = Assembly(key.sizes.curve, facts.elements, self._randomness)
        admitted, sums = self._sum(run, key, facts, witness, settings, assembly)
        public = witness.public_bytes(key.sizes.n_public)
        with run.phase("assemble", Kind.ASSEMBLE):
            proof = assembly.finish(sums)
        with run.phase("verify", Kind.VERIFY):
            self._verify(key, witness, public, proof)
        run.advance(run.costs.finish())
        return ProofOutcome(proof.decoded(), public, self.device.info.id, run.phases, admitted.mode, admitted.plan.peak)

    def _value_check(self, run: Run) -> ValueCheck:
        call = native.Call(native.memory_threads(self._evaluation_threads), run.cancel.address)

        def check(raw: Bytes, curve: Curve) -> int | None:
            return native.library().field_check(curve, native.Field.FR, raw, len(raw), call)

        return check

    def _sum(
        self,
        run: Run,
        key: ProvingKey,
        facts: _Facts,
        witness: Witness,
        settings: PipelineSettings,
        assembly: Assembly,
    ) -> tuple[Admitted, dict[Query, bytes]]:
        """What needs the device; an incident where its memory, or the host's, was not enough."""
        work = facts.work
        choices = modes(settings, self.device.info.kind, work)
        admitted: Admitted | None = None
        partition: Partition | None = None
        try:
            with ExitStack() as stack:
                with run.phase("memory"):
                    admitted = self._gate.admit(stack, work, choices, facts.sources, run.owner, run.cancel)
                if _streams(work, admitted.mode) and self.device.info.page_locks:
                    with run.phase("load_key", Kind.LOAD_KEY):
                        key = stack.enter_context(self.keys.use_hot(key, run.cancel, run.loading))
                partition = Partition(
                    self.device, self._tables, run, key, work, witness, self._threads, self._barrier, assembly.begin,
                    self._evaluation_threads,
                )  # fmt: skip
                return admitted, partition.run(stack, admitted)
        except OutOfDeviceMemoryError as error:
            mode = choices[-1] if admitted is None else admitted.mode
            if not isinstance(error, MemoryPlanError):
                error.reduced = self._next_smaller(work, settings, choices, mode)
            picture = (partition and partition.picture) or freeze(self.device, error, run.owner.worker)
            least = self._gate.most(work, choices[-1]) if isinstance(error, MemoryPlanError) else None
            picture = self._explained(picture, work, mode, settings, least)
            run.incident("out-of-memory", str(error), error.requested, error.free, picture)
            raise

    def _facts_of(self, key: ProvingKey) -> _Facts:
        found = self._facts.get(key)
        if found is None:
            work = Work(key.sizes, key.device_matrices is not None, key.staging_bytes > 0)
            found = self._facts[key] = _Facts(work, CostModel(key.sizes), _sources(key), joined(key.elements))
        return found

    def _next_smaller(
        self, work: Work, settings: PipelineSettings, choices: tuple[Mode, ...], mode: Mode
    ) -> int | None:
        """``reduced`` for the first mode after ``mode`` that takes less."""
        plan = self._gate.plan(work, mode)
        skipped = len(modes(replace(settings, reduced=0), self.device.info.kind, work)) - len(choices)
        for index in range(choices.index(mode) + 1, len(choices)):
            other = self._gate.plan(work, choices[index])
            if other.peak < plan.peak or other.own < plan.own or other.host_bytes < plan.host_bytes:
                return skipped + index
        return None

    def _explained(
        self, picture: Picture, work: Work, mode: Mode, settings: PipelineSettings, least: int | None
    ) -> Picture:
        """With the settings, and what would have helped."""
        from cuzk_engine.pipeline.report import planned, remedies

        device = self.device
        done = replace(settings, prestage=mode.prestage, evaluate=mode.evaluate, residency=mode.residency, reduced=0)
        holders = {holding.worker for holding in picture.holdings if holding.worker >= 0} | {picture.worker}
        with self._lock:
            workers = max(self._active, len(holders))  # who held memory then may have failed, too, and be gone

        def total(changed: PipelineSettings, count: int) -> int:
            return planned(work, modes(changed, device.info.kind, work)[0], device).together(count)

        found = remedies(done, workers, self._gate.capacity(), device.info.kind, device.info.id, total, least)
        return replace(picture, settings=tuple(mode.settings().items()), remedies=found)

    def _verify(self, key: ProvingKey, witness: Witness, public: bytes, proof: EncodedProof) -> None:
        try:
            key.verification_key.verify_encoded(public, proof)
        except ProofInvalidError as error:
            if not key.is_unchanged():
                self.keys.evict(key.path)
                message = f"{key.path}: the key changed while it was used; prove again with the new one"
                raise CuzkError(message) from error
            message = (
                "proof did not verify: the witness does not satisfy the circuit, or the key is of another circuit"
                f"{key.explain(witness)}"
            )
            raise ProofInvalidError(message) from error


def plan_for(device: Device, sizes: CircuitSizes, settings: PipelineSettings) -> PartitionPlan:
    """What one proof of such a circuit needs on ``device``, in the mode that was asked for."""
    work = Work(sizes)
    mode = modes(settings, device.info.kind, work)[0]
    return plan_partition(work, mode, device)


class _Here(threading.local):
    """The proof that this thread works on."""

    run: Run | None = None


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is the same for all proofs with a key."""

    work: Work
    costs: CostModel
    sources: Sources
    elements: bytes  # for the assembly


def _streams(work: Work, mode: Mode) -> bool:
    """Whether points travel for each proof."""
    return len(residents(work, mode)) < len(QUERIES)


def _sources(key: ProvingKey) -> Sources:
    """The host bytes that copies on a device are known by."""
    matrices = key.device_matrices
    points = {}
    if not key.staging_bytes:
        for query in QUERIES:
            parts = key.sizes.ranges(query)
            if len(parts) == 1:
                points[query] = key.points(query, parts[0], None, native.Call(1))
    return Sources(None if matrices is None else matrices.coefficients, points)
