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
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from cuzk_engine import native
from cuzk_engine.devices.arena import machine_limit
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
    Reservation,
)
from cuzk_engine.devices.ledger import Ledger
from cuzk_engine.devices.memory import HostBuffer
from cuzk_engine.devices.tables import TableCache
from cuzk_engine.errors import CuzkError, FormatError, OutOfDeviceMemoryError, ProofInvalidError
from cuzk_engine.events import Incident, Kind, Purpose, Span, host_lane
from cuzk_engine.formats.proof import Proof, PublicSignals
from cuzk_engine.formats.source import Bytes
from cuzk_engine.formats.wtns import Witness, check_witness
from cuzk_engine.groth16.assemble import Blinding, Randomness, assemble
from cuzk_engine.groth16.plan import CircuitSizes, CostModel, Needs, PartitionPlan, Query, plan_partition
from cuzk_engine.keys import KeyCache, LoadedKey

log = logging.getLogger(__name__)

Progress = Callable[[str, float], None]
"""(phase, share of the whole proof that is done, 0…1); called from the proving thread, never backwards."""

HOST: Final = "host"  # the name of the host's memory in events
_LOADING_SHARE: Final = 0.1  # of the bar, when a key is checked for the first time
_R1CS_LIMIT: Final = 64 << 20  # a larger constraint system is not searched for the violated constraint


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
        self.host_memory = Ledger(HOST, machine_limit().nbytes, sink)
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
    ) -> ProofOutcome:
        """A verified proof that the witness satisfies the key's circuit.

        Raises FormatError for a bad key or witness, OutOfDeviceMemoryError (MemoryPlanError before anything was
        allocated), ProofInvalidError when the proof did not verify, CancelledError. Whatever happens, all memory is
        given back.
        """
        run = _Run(self.device.info.id, owner, cancel or CancelToken(), self._sink, progress)
        try:
            return self._prove(run, key_path, witness, settings)
        except OutOfDeviceMemoryError as error:
            run.incident("out-of-memory", str(error), error.requested, error.free)
            raise
        except ProofInvalidError as error:
            run.incident("verification-failed", str(error))
            raise

    def _prove(
        self, run: _Run, key_path: Path | str, witness: Witness | Path | str, settings: PipelineSettings
    ) -> ProofOutcome:
        with run.phase("load_key", Kind.LOAD_KEY):
            key = self.keys.get(key_path, run.cancel, run.loading)
        run.begin(CostModel(key.sizes))
        with run.phase("read_witness", Kind.READ_WITNESS):
            if not isinstance(witness, Witness):
                witness = Witness.open(witness)
            check_witness(key.zkey, witness)
        run.advance(run.costs.read_witness())
        plan = self.plan(key.sizes, settings)
        sums, prestage = _OnDevice(self, run, key, witness, plan, settings).run()
        public = PublicSignals(witness.public_values(key.zkey.n_public))
        with run.phase("assemble", Kind.ASSEMBLE):
            proof = assemble(key.zkey, sums, Blinding.fresh(key.zkey.curve, self._randomness))
        with run.phase("verify", Kind.VERIFY):
            self._verify(key, witness, public, proof)
        run.advance(run.costs.finish())
        return ProofOutcome(proof, public, self.device.info.id, run.phases, prestage, plan.peak)

    def _verify(self, key: LoadedKey, witness: Witness, public: PublicSignals, proof: Proof) -> None:
        try:
            key.verification_key.verify(public.values, proof)
        except ProofInvalidError as error:
            if not key.is_unchanged():
                self.keys.evict(key.path)
                message = f"{key.path}: the key changed while it was used; prove again with the new one"
                raise CuzkError(message) from error
            message = (
                "proof did not verify: the witness does not satisfy the circuit, or the key is of another circuit"
                f"{_violated(key, witness)}"
            )
            raise ProofInvalidError(message) from error


def plan_for(device: Device, sizes: CircuitSizes, settings: PipelineSettings) -> PartitionPlan:
    """What one proof of such a circuit needs on ``device``."""
    needs = Needs(
        msm_scratch=lambda curve, group, n: device.scratch_bytes(Msm, curve, group, n),
        ntt_table=device.table_bytes,
    )
    return plan_partition(sizes, needs, evaluate_on_device=_evaluates_on_device(device, settings))


def _evaluates_on_device(device: Device, settings: PipelineSettings) -> bool:
    if settings.evaluate is Evaluation.AUTO:
        return False  # the matrices are read where the key is mapped, by the host's threads
    return settings.evaluate is Evaluation.DEVICE


def _violated(key: LoadedKey, witness: Witness) -> str:
    """ "; constraint N of circuit.r1cs is the first that it violates", when the circuit lies beside the key."""
    path = Path(key.path).with_suffix(".r1cs")
    try:
        if not path.is_file() or path.stat().st_size > _R1CS_LIMIT:
            return ""
        from cuzk_engine.formats.r1cs import R1cs, first_unsatisfied

        r1cs = R1cs.open(path)
        if (r1cs.header.n_wires, r1cs.header.n_public) != (key.zkey.n_vars, key.zkey.n_public):
            return ""
        number = first_unsatisfied(r1cs, witness)
    except (OSError, FormatError):
        return ""
    if number is None:
        return f"; it satisfies {path.name}, which lies beside the key"
    return f"; constraint {number:,} of {path.name}, counted from 0, is the first that it violates"


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
    a: Buffer
    b: Buffer
    c: Buffer
    ready: dict[str, DeviceEvent] = field(default_factory=dict)


class _OnDevice:
    """The part of one proof that uses the device: from the reservation to the five sums."""

    def __init__(
        self,
        runner: Runner,
        run: _Run,
        key: LoadedKey,
        witness: Witness,
        plan: PartitionPlan,
        settings: PipelineSettings,
    ) -> None:
        self._device = runner.device
        self._tables = runner._tables
        self._host_memory = runner.host_memory
        self._threads = runner._threads
        self._work = run
        self._owner, self._cancel = run.owner, run.cancel
        self._key, self._zkey, self._sizes = key, key.zkey, key.sizes
        self._witness = witness
        self._plan = plan
        self._settings = settings
        self._on_device = _evaluates_on_device(runner.device, settings)

    def run(self) -> tuple[dict[Query, bytes], Prestage]:
        """The five sums, and how the inputs were staged."""
        with ExitStack() as stack:
            reservation, prestage = self._reserve(stack)
            host = [] if self._on_device else self._evaluate_on_host(stack)
            vectors = self._upload(stack, host) if prestage is Prestage.AHEAD else None
            with self._locked(), ExitStack() as inside:
                if vectors is None:
                    vectors = self._upload(inside, host)
                self._transform(vectors, reservation)
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

    def _evaluate_on_host(self, stack: ExitStack) -> list[HostBuffer]:
        key, zkey, sizes = self._key, self._zkey, self._sizes
        with self._work.phase("evaluate", Kind.EVALUATE):
            buffers = [
                stack.enter_context(
                    HostBuffer.allocate(self._host_memory, sizes.vector_bytes, Purpose.ABC, self._owner)
                )
                for _ in "abc"
            ]
            native.library().evaluate(
                zkey.curve,
                zkey.coefficients,
                zkey.n_coefficients,
                key.order,
                self._witness.raw,
                sizes.domain_size,
                buffers[0].data,
                buffers[1].data,
                buffers[2].data,
                native.Call(self._threads, self._cancel.address),
            )
        self._work.advance(self._work.costs.evaluate())
        return buffers

    def _upload(self, stack: ExitStack, host: list[HostBuffer]) -> _Vectors:
        device, owner, sizes = self._device, self._owner, self._sizes
        with self._work.phase("upload"):
            witness = stack.enter_context(device.allocate(sizes.witness_bytes, Purpose.WITNESS, owner))
            a, b, c = (stack.enter_context(device.allocate(sizes.vector_bytes, Purpose.ABC, owner)) for _ in "abc")
            vectors = _Vectors(witness, a, b, c)
            vectors.ready["w"] = device.upload(witness, self._witness.raw, Kind.UPLOAD_WITNESS, owner)
            for name, target, source in zip("abc", (a, b, c), host, strict=False):
                vectors.ready[name] = device.upload(target, source.data, Kind.UPLOAD_ABC, owner)
        return vectors

    def _transform(self, vectors: _Vectors, reservation: Reservation) -> None:
        """Leaves the scalars of the H query in ``a``."""
        device, owner, cancel, sizes = self._device, self._owner, self._cancel, self._sizes
        curve, log_n = sizes.curve, sizes.log_domain
        a, b, c, ready = vectors.a, vectors.b, vectors.c, vectors.ready
        if self._on_device:
            with self._work.phase("evaluate"):
                zkey = self._zkey
                operation = Evaluate(
                    curve, zkey.coefficients, self._key.order, vectors.witness, a, b, c, sizes.domain_size
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
            done.append(device.launch(HJoin(curve, a, b, c, sizes.domain_size), owner, cancel))
            for event in done:
                event.wait()
            b.free()
            c.free()
        self._work.advance(self._work.costs.transforms())

    def _sum_queries(self, stack: ExitStack, vectors: _Vectors) -> dict[Query, bytes]:
        device, owner, cancel, sizes = self._device, self._owner, self._cancel, self._sizes
        points = self._query_points()
        sums: dict[Query, bytes] = {}
        results = {
            query: stack.enter_context(device.allocate(sizes.point_bytes(query), Purpose.RESULT, owner))
            for query in Query
        }
        running: list[tuple[Query, DeviceEvent]] = []

        def collect(*, wait: bool) -> None:
            while running and (wait or running[0][1].done()):
                query, event = running.pop(0)
                event.wait()
                sums[query] = device.download(results[query], sizes.point_bytes(query), Kind.DOWNLOAD_RESULT, owner)
                results[query].free()
                if query is Query.H:
                    vectors.a.free()
                self._work.advance(self._work.costs.msm(query))

        with self._work.phase("msm"):
            for query in Query:
                scalars = vectors.a if query is Query.H else vectors.witness
                n = sizes.query_length(query)
                offset = sizes.n_public + 1 if query is Query.L else 0
                operation = Msm(sizes.curve, query.group, points[query], scalars, offset, n, results[query])
                after = vectors.ready["w"] if query is not Query.H else None
                running.append((query, device.launch(operation, owner, cancel, after)))
                collect(wait=False)
            collect(wait=True)
        return sums

    def _query_points(self) -> dict[Query, Bytes]:
        zkey = self._zkey
        return {Query.H: zkey.h, Query.A: zkey.a, Query.B1: zkey.b1, Query.B2: zkey.b2, Query.L: zkey.l}
