"""The proving pipeline of one partition on one device: evaluate → upload → H → five MSMs → assemble → verify.

``cuzk prove`` calls it in its own process, a device process from its worker threads. It knows devices by their
protocol, keys and witnesses by their formats; it knows no jobs' store, no sockets and no configuration file.

Memory is reserved first and never waited for while the compute lock is held. What comes then depends on pre-staging:

    ahead         evaluate · upload · lock { H, MSMs } · assemble · verify      where the plan fits at once, else like
    locked locked, off   evaluate · lock { upload, H, MSMs } · assemble · verify       off: from pageable memory

A device that knows no page-locked memory treats off and locked alike. The witness, r and s are secrets: they appear in
no message and in no event.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from cuzk_engine import native
from cuzk_engine.devices.base import (
    Buffer,
    CancelToken,
    CosetExtend,
    Device,
    DeviceEvent,
    Evaluate,
    EventSink,
    HJoin,
    Msm,
    Owner,
    Quotient,
    Reservation,
    StagingBuffer,
)
from cuzk_engine.devices.tables import TableCache
from cuzk_engine.errors import CuzkError, OutOfDeviceMemoryError, ProofInvalidError
from cuzk_engine.events import Incident, Kind, Purpose, Span, host_lane
from cuzk_engine.formats.proof import Proof, PublicSignals
from cuzk_engine.formats.wtns import Witness
from cuzk_engine.groth16.assemble import BlindedKey, Blinding, Randomness, add_points, assemble
from cuzk_engine.groth16.plan import CircuitSizes, CostModel, Needs, PartitionPlan, Query, plan_partition
from cuzk_engine.groth16.proving_key import HBasis, PointRange, ProvingKey
from cuzk_engine.keys import KeyCache
from cuzk_engine.native import Group

log = logging.getLogger(__name__)

Progress = Callable[[str, float], None]
"""(phase, share of the whole proof that is done, 0…1); called from the proving thread, never backwards."""

_LOADING_SHARE: Final = 0.1  # of the bar, when a key is checked for the first time


class Prestage(StrEnum):
    OFF = "off"
    LOCKED = "locked"
    AHEAD = "ahead"


class Evaluation(StrEnum):
    AUTO = "auto"
    HOST = "host"
    DEVICE = "device"


class Residency(StrEnum):
    AUTO = "auto"
    HOST = "host"
    DEVICE = "device"


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """How a partition runs; taken once when it starts. See the settings ``pipeline.*`` and ``srs.residency``."""

    prestage: Prestage = Prestage.AHEAD
    double_buffer: bool = True
    evaluate: Evaluation = Evaluation.AUTO
    residency: Residency = Residency.AUTO


@dataclass(frozen=True, slots=True)
class ProofOutcome:
    """A verified proof. ``phases``: name → nanoseconds, in order; ``prestage``: what was really done; ``peak_bytes``:
    of the plan."""

    proof: Proof
    public: PublicSignals
    device: str
    phases: dict[str, int]
    prestage: Prestage
    peak_bytes: int

    @property
    def verified_ms(self) -> float:
        return self.phases["verify"] / 1e6


class Runner:
    """Proves on one device. ``prove`` may be called from several worker threads at once.

    ``sink`` gets the host's spans, allocations and incidents; the device has its own. ``randomness`` is for tests.
    """

    def __init__(
        self,
        device: Device,
        keys: KeyCache,
        sink: EventSink | None = None,
        threads: int = 0,
        randomness: Randomness = secrets.randbelow,
    ) -> None:
        self.device = device
        self.keys = keys
        self.host_memory = device.host
        self._sink = sink
        self._threads = threads
        self._randomness = randomness
        self._tables = TableCache(device)

    def plan(self, sizes: CircuitSizes, settings: PipelineSettings = PipelineSettings()) -> PartitionPlan:
        """What one proof of such a circuit needs on this device."""
        return plan_for(self.device, sizes, settings)

    def release_caches(self) -> None:
        """Frees the tables that no proof uses and forgets the keys."""
        self._tables.clear()
        self.keys.evict()

    def prove(
        self,
        key_path: Path | str,
        witness: Witness | Path | str,
        owner: Owner,
        settings: PipelineSettings = PipelineSettings(),
        progress: Progress | None = None,
        cancel: CancelToken | None = None,
        circuit: Path | str | None = None,
    ) -> ProofOutcome:
        """A verified proof that the witness satisfies the key's circuit.

        ``circuit``: the constraint system (r1cs or pce) of a bellperson key, which does not hold its own.

        Raises FormatError for a bad key or witness, OutOfDeviceMemoryError (MemoryPlanError before anything was
        allocated), ProofInvalidError when the proof did not verify, CancelledError. Whatever happens, all memory is
        given back.
        """
        run = _Run(self.device.info.id, owner, cancel or CancelToken(), self._sink, progress)
        try:
            return self._prove(run, key_path, circuit, witness, settings)
        except OutOfDeviceMemoryError as error:
            run.incident("out-of-memory", str(error), error.requested, error.free)
            raise
        except ProofInvalidError as error:
            run.incident("verification-failed", str(error))
            raise

    def _prove(
        self,
        run: _Run,
        key_path: Path | str,
        circuit: Path | str | None,
        witness: Witness | Path | str,
        settings: PipelineSettings,
    ) -> ProofOutcome:
        with run.phase("load_key", Kind.LOAD_KEY):
            key: ProvingKey = self.keys.get(key_path, run.cancel, run.loading, circuit)
        if key.device_matrices is None:
            settings = replace(settings, evaluate=Evaluation.HOST)
        run.begin(CostModel(key.sizes))
        with run.phase("read_witness", Kind.READ_WITNESS):
            if not isinstance(witness, Witness):
                witness = Witness.open(witness)
            key.check_witness(witness)
        run.advance(run.costs.read_witness())
        plan = self.plan(key.sizes, settings)
        on_device = _OnDevice(self, run, key, witness, plan, settings)
        sums, prestage = on_device.run()
        public = PublicSignals(witness.public_values(key.sizes.n_public))
        with run.phase("assemble", Kind.ASSEMBLE):
            proof = assemble(key.sizes.curve, on_device.blinded(), sums)
        with run.phase("verify", Kind.VERIFY):
            self._verify(key, witness, public, proof)
        run.advance(run.costs.finish())
        return ProofOutcome(proof, public, self.device.info.id, run.phases, prestage, plan.peak)

    def _verify(self, key: ProvingKey, witness: Witness, public: PublicSignals, proof: Proof) -> None:
        try:
            key.verification_key.verify(public.values, proof)
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
    """What one proof of such a circuit needs on ``device``."""
    needs = Needs(
        msm_scratch=lambda curve, group, n: device.msm_need(curve, group, n, n, resident=True).scratch,
        ntt_table=device.table_bytes,
        evaluate_scratch=lambda curve, n: device.evaluate_need(curve, n, 0, 0).scratch,
    )
    return plan_partition(sizes, needs, evaluate_on_device=_evaluates_on_device(device, settings))


def _evaluates_on_device(device: Device, settings: PipelineSettings) -> bool:
    if settings.evaluate is Evaluation.AUTO:
        # For the CPU the matrices are read where the key is mapped, by the host's threads.
        return device.info.kind != "cpu"
    return settings.evaluate is Evaluation.DEVICE


class _Run:
    """One proof's owner, cancellation, phase times and progress."""

    def __init__(
        self, device: str, owner: Owner, cancel: CancelToken, sink: EventSink | None, progress: Progress | None
    ) -> None:
        self.owner = owner
        self.cancel = cancel
        self.phases: dict[str, int] = {}
        self._device = device
        self._sink = sink
        self._progress = progress
        self._name = ""
        self._reached = 0.0
        self._base = 0.0
        self._costs: CostModel | None = None
        self._done = 0.0

    @property
    def costs(self) -> CostModel:
        assert self._costs is not None, "begin() comes first"
        return self._costs

    @contextmanager
    def phase(self, name: str, kind: Kind | None = None) -> Iterator[None]:
        """Times a phase; with ``kind`` it is a span on the worker's host lane."""
        self.cancel.check()
        self._name = name
        self._report(self._reached)
        start = time.monotonic_ns()
        try:
            yield
        finally:
            end = time.monotonic_ns()
            self.phases[name] = self.phases.get(name, 0) + end - start
            if kind is not None and self._sink is not None:
                owner = self.owner
                lane = host_lane(owner.worker)
                self._sink(Span(start, end, self._device, lane, kind, owner.job, owner.partition, owner.worker))
        self.cancel.check()

    def loading(self, share: float) -> None:
        """Progress of the check of a new key."""
        self._report(_LOADING_SHARE * share)

    def begin(self, costs: CostModel) -> None:
        """The circuit is known: what is left of the bar is divided by the cost model."""
        self._costs = costs
        self._base = self._reached

    def advance(self, cost: float) -> None:
        self._done += cost
        self._report(self._base + (1 - self._base) * min(1.0, self._done / self.costs.total()))

    def incident(self, kind: str, message: str, requested: int | None = None, free: int | None = None) -> None:
        if self._sink is not None:
            now = time.monotonic_ns()
            self._sink(Incident(now, self._device, kind, self.owner.job, message, requested, free))

    def _report(self, fraction: float) -> None:
        self._reached = max(self._reached, fraction)
        if self._progress is not None:
            self._progress(self._name, self._reached)


@dataclass(slots=True)
class _Vectors:
    """The inputs on the device, and the events after which they are there."""

    witness: Buffer
    abc: list[Buffer] = field(default_factory=list)
    ready: dict[str, DeviceEvent] = field(default_factory=dict)


class _OnDevice:
    """The part of one proof that uses the device: from the reservation to the five sums."""

    def __init__(
        self,
        runner: Runner,
        run: _Run,
        key: ProvingKey,
        witness: Witness,
        plan: PartitionPlan,
        settings: PipelineSettings,
    ) -> None:
        self._device = runner.device
        self._tables = runner._tables
        self._threads = runner._threads
        self._randomness = runner._randomness
        self._blinded: BlindedKey | None = None
        self._work = run
        self._owner, self._cancel = run.owner, run.cancel
        self._key, self._sizes = key, key.sizes
        self._witness = witness
        self._plan = plan
        self._settings = settings
        self._matrices = key.device_matrices if _evaluates_on_device(runner.device, settings) else None

    def run(self) -> tuple[dict[Query, bytes], Prestage]:
        """The five sums, and how the inputs were staged."""
        with ExitStack() as stack:
            reservation, prestage = self._reserve(stack)
            host = [] if self._matrices is not None else self._evaluate_on_host(stack)
            vectors = self._upload(stack, host) if prestage is Prestage.AHEAD else None
            with self._locked(), ExitStack() as inside:
                if vectors is None:
                    vectors = self._upload(inside, host)
                self._transform(inside, vectors, reservation)
                for buffer in host:
                    buffer.free()
                return self._sum_queries(inside, vectors), prestage

    def _reserve(self, stack: ExitStack) -> tuple[Reservation, Prestage]:
        prestage = self._settings.prestage
        with self._work.phase("memory"):
            if prestage is Prestage.AHEAD:
                reservation = self._device.try_reserve(*self._plan.reservation(ahead=True), self._owner)
                if reservation is not None:
                    return stack.enter_context(reservation), prestage
                prestage = Prestage.LOCKED
            reservation = self._device.reserve(*self._plan.reservation(ahead=False), self._owner, self._cancel)
            return stack.enter_context(reservation), prestage

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with ExitStack() as stack:
            with self._work.phase("lock"):
                stack.enter_context(self._device.compute_lock(self._owner, self._cancel))
            yield

    def _evaluate_on_host(self, stack: ExitStack) -> list[StagingBuffer]:
        sizes = self._sizes
        with self._work.phase("evaluate", Kind.EVALUATE):
            buffers = [
                stack.enter_context(self._device.staging(sizes.vector_bytes, Purpose.ABC, self._owner, pinned=True))
                for _ in "abc"
            ]
            a, b, c = (buffer.data for buffer in buffers)
            self._key.evaluate(self._witness, a, b, c, native.Call(self._threads, self._cancel.address))
        self._work.advance(self._work.costs.evaluate())
        return buffers

    def _upload(self, stack: ExitStack, host: list[StagingBuffer]) -> _Vectors:
        device, owner, sizes = self._device, self._owner, self._sizes
        with self._work.phase("upload"):
            witness = stack.enter_context(device.allocate(sizes.witness_bytes, Purpose.WITNESS, owner))
            vectors = _Vectors(witness, self._allocate_abc(stack) if host else [])
            vectors.ready["w"] = device.upload(witness, self._witness.raw, Kind.UPLOAD_WITNESS, owner)
            for name, target, source in zip("abc", vectors.abc, host, strict=False):
                vectors.ready[name] = device.upload(target, source.data, Kind.UPLOAD_ABC, owner)
        return vectors

    def _allocate_abc(self, stack: ExitStack) -> list[Buffer]:
        nbytes = self._sizes.vector_bytes
        return [stack.enter_context(self._device.allocate(nbytes, Purpose.ABC, self._owner)) for _ in "abc"]

    def _transform(self, stack: ExitStack, vectors: _Vectors, reservation: Reservation) -> None:
        """Leaves the scalars of the H query in ``a``."""
        device, owner, cancel, sizes = self._device, self._owner, self._cancel, self._sizes
        curve, log_n = sizes.curve, sizes.log_domain
        matrices, ready = self._matrices, vectors.ready
        if matrices is not None:
            vectors.abc = self._allocate_abc(stack)
        a, b, c = vectors.abc
        if matrices is not None:
            with self._work.phase("evaluate"):
                operation = Evaluate(
                    curve, matrices.coefficients, matrices.order, vectors.witness, a, b, c, sizes.domain_size
                )
                ready.update(dict.fromkeys("abc", device.launch(operation, owner, cancel, ready["w"])))
            self._work.advance(self._work.costs.evaluate())
        with (
            self._work.phase("ntt"),
            self._tables.use(curve, log_n, self._plan.table, reservation, owner, cancel) as table,
        ):
            done = [
                device.launch(CosetExtend(curve, buffer, log_n, table), owner, cancel, ready[name])
                for name, buffer in zip("abc", (a, b, c), strict=True)
            ]
            join = (
                HJoin(curve, a, b, c, sizes.domain_size)
                if self._key.h_basis is HBasis.COSET
                else Quotient(curve, a, b, c, log_n, table)
            )
            done.append(device.launch(join, owner, cancel))
            for event in done:
                event.wait()
            b.free()
            c.free()
        self._work.advance(self._work.costs.transforms())

    def _sum_queries(self, stack: ExitStack, vectors: _Vectors) -> dict[Query, bytes]:
        device, owner, cancel, sizes, key = self._device, self._owner, self._cancel, self._sizes, self._key
        sums: dict[Query, bytes] = {}
        results = {
            query: stack.enter_context(device.allocate(sizes.point_bytes(query), Purpose.RESULT, owner))
            for query in Query
        }
        running: list[tuple[Query, PointRange, DeviceEvent]] = []

        def collect(*, wait: bool) -> None:
            while running and (wait or running[0][2].done()):
                query, part, event = running.pop(0)
                event.wait()
                found = device.download(results[query], sizes.point_bytes(query), Kind.DOWNLOAD_RESULT, owner)
                sums[query] = add_points(sizes.curve, Group(query.group), *filter(None, (sums.get(query), found)))
                whole = sizes.query_length(query)
                self._work.advance(self._work.costs.msm(query) * (part.n / whole if whole else 1))
                if part.first + part.n == whole:
                    results[query].free()
                    if query is Query.H:
                        vectors.abc[0].free()

        with self._work.phase("msm"):
            staging = None
            if key.staging_bytes:
                staging = stack.enter_context(device.staging(key.staging_bytes, Purpose.SRS, owner, pinned=False)).data
            for query in Query:
                scalars = vectors.abc[0] if query is Query.H else vectors.witness
                offset = sizes.n_public + 1 if query is Query.L else 0
                after = vectors.ready["w"] if query is not Query.H else None
                parts = key.ranges(query)
                for part in parts:
                    points = key.points(query, part, staging, native.Call(self._threads, cancel.address))
                    operation = Msm(
                        sizes.curve, query.group, points, scalars, offset + part.first, part.n, results[query]
                    )
                    running.append((query, part, device.launch(operation, owner, cancel, after)))
                    # One result and one staging buffer serve all parts of a query.
                    collect(wait=staging is not None or len(parts) > 1)
            self.blinded()  # while a GPU is busy
            collect(wait=True)
        return sums

    def blinded(self) -> BlindedKey:
        """The key's elements with fresh blinding factors, the same at every call."""
        if self._blinded is None:
            curve = self._sizes.curve
            self._blinded = BlindedKey.of(self._key.elements, Blinding.fresh(curve, self._randomness))
        return self._blinded
