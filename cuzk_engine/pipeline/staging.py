"""A partition's inputs: prepared in host memory, and brought from there to the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field

from cuzk_engine import native
from cuzk_engine.devices.base import Buffer, Bytes, Device, DeviceEvent, StagingBuffer
from cuzk_engine.events import Kind, Purpose
from cuzk_engine.formats.wtns import Witness
from cuzk_engine.groth16.proving_key import ProvingKey
from cuzk_engine.pipeline.modes import Mode, Prestage
from cuzk_engine.pipeline.progress import Run


@dataclass(slots=True)
class Vectors:
    """The inputs on the device, and the events after which each is there. ``abc`` is empty until the device has
    evaluated, where it does."""

    witness: Buffer
    abc: list[Buffer] = field(default_factory=list)
    ready: dict[str, DeviceEvent] = field(default_factory=dict)


class Staging:
    """The inputs in host memory; a context manager that frees it, after the uploads that read it."""

    def __init__(self, device: Device, run: Run, key: ProvingKey, witness: Witness, mode: Mode) -> None:
        self._device, self._run, self._key, self._witness, self._mode = device, run, key, witness, mode
        self._sizes = key.sizes
        self._buffers: list[StagingBuffer] = []
        self._sources: dict[str, Bytes] = {"w": witness.raw}
        self._uploads: list[DeviceEvent] = []

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *exc: object) -> None:
        self.free()

    def prepare(self, threads: int) -> None:
        """Evaluates a, b, c where the host does, and copies the witness where page-locked memory pays."""
        pinned = self._mode.prestage is not Prestage.OFF
        if pinned and self._device.info.page_locks:
            copy = self._allocate(self._sizes.witness_bytes, Purpose.WITNESS, pinned=True)
            call = native.Call(native.memory_threads(threads), self._run.cancel.address)
            native.library().bytes_copy(copy, self._witness.raw, self._witness.raw.nbytes, call)
            self._sources["w"] = copy
        if self._mode.on_device:
            return
        with self._run.phase("evaluate", Kind.EVALUATE):
            a, b, c = (self._allocate(self._sizes.vector_bytes, Purpose.ABC, pinned=pinned) for _ in "abc")
            self._key.evaluate(self._witness, a, b, c, native.Call(threads, self._run.cancel.address))
            self._sources.update(a=a, b=b, c=c)
        self._run.advance(self._run.costs.evaluate())

    def upload(self, stack: ExitStack) -> Vectors:
        """Device buffers, freed when ``stack`` ends, and what fills them, each with an event of its own."""
        device, owner, sizes = self._device, self._run.owner, self._sizes
        with self._run.phase("upload"):
            witness = stack.enter_context(device.allocate(sizes.witness_bytes, Purpose.WITNESS, owner))
            vectors = Vectors(witness)
            if not self._mode.on_device:
                vectors.abc = allocate_abc(stack, device, self._run, sizes.vector_bytes)
            targets = dict(zip("wabc", (witness, *vectors.abc), strict=False))
            for name, target in targets.items():
                kind = Kind.UPLOAD_WITNESS if name == "w" else Kind.UPLOAD_ABC
                event = device.upload(target, self._sources[name], kind, owner)
                vectors.ready[name] = event
                self._uploads.append(event)
        return vectors

    def free(self) -> None:
        """Waits for the uploads; calling it twice does nothing."""
        if not self._sources:
            return
        buffers, self._buffers = self._buffers, []
        uploads, self._uploads = self._uploads, []
        try:
            do_all([event.wait for event in uploads])
        finally:
            self._sources = {}
            do_all([buffer.free for buffer in buffers])

    def _allocate(self, nbytes: int, purpose: Purpose, *, pinned: bool) -> Bytes:
        buffer = self._device.staging(nbytes, purpose, self._run.owner, pinned=pinned)
        self._buffers.append(buffer)
        return buffer.data[:nbytes]


def allocate_abc(stack: ExitStack, device: Device, run: Run, nbytes: int) -> list[Buffer]:
    buffers: list[Buffer] = []
    stack.callback(lambda: do_all([buffer.free for buffer in reversed(buffers)]))
    for _ in "abc":
        buffers.append(device.allocate(nbytes, Purpose.ABC, run.owner))
    return buffers


def do_all(calls: Iterable[Callable[[], None]]) -> None:
    """Each of them, whatever the others raise: to wait for all and to free all. Raises what the last one did."""
    left = iter(calls)
    for call in left:
        try:
            call()
        except BaseException:
            do_all(left)
            raise
