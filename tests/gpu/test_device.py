"""The CUDA device against the CPU device, bit for bit; its memory, its spans and its errors."""

from __future__ import annotations

import functools
import itertools
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import cupy
import numpy as np
import pytest

from cuzk_engine.curves import Curve
from cuzk_engine.devices.arena import Capacity
from cuzk_engine.devices.base import (
    CancelToken,
    CosetExtend,
    Device,
    Evaluate,
    HJoin,
    Msm,
    NttTable,
    Owner,
    Quotient,
)
from cuzk_engine.devices.cpu import CpuDevice
from cuzk_engine.devices.cuda.device import CudaDevice
from cuzk_engine.errors import CuzkError, MemoryPlanError, OutOfDeviceMemoryError
from cuzk_engine.events import Allocation, Event, Kind, Lane, Purpose, Span
from cuzk_engine.formats.wtns import Witness
from cuzk_engine.formats.zkey import ZKey
from cuzk_engine.key_checks import check_coefficients
from tests.gpu.conftest import KERNELS
from tests.gpu.curve_reference import generator, montgomery_bytes, multiply
from tests.support.cases import case

ME = Owner("job", 0, 1)
MIB = 1 << 20
EVENTS: list[Event] = []


@pytest.fixture(scope="module")
def cuda() -> Iterator[CudaDevice]:
    device = CudaDevice(0, KERNELS, EVENTS.append)
    yield device
    device.close()
    assert device.memory().used == 0


@pytest.fixture(scope="module")
def cpu() -> CpuDevice:
    return CpuDevice(Capacity(4 << 30, "test"))


@pytest.fixture(autouse=True)
def nothing_is_left(cuda: CudaDevice) -> Iterator[None]:
    yield
    cuda.release_residents()
    assert cuda.memory().by_purpose == {"context": cuda.context_bytes}


def put(device: Device, data: np.ndarray, purpose: Purpose = Purpose.ABC) -> object:
    buffer = device.allocate(data.nbytes, purpose, ME)
    device.upload(buffer, data, Kind.UPLOAD_ABC, ME).wait()
    return buffer


def random_scalars(curve: Curve, n: int, seed: int) -> np.ndarray:
    source = random.Random(seed)
    edge = [0, 1, curve.r - 1, curve.r // 2, 2]
    values = [edge[i % 5] if i % 7 == 0 else source.randrange(curve.r) for i in range(n)]
    return np.frombuffer(b"".join(v.to_bytes(32, "little") for v in values), np.uint8).reshape(n, 32)


def test_info(cuda: CudaDevice) -> None:
    info = cuda.info
    assert (info.id, info.kind) == ("cuda:0", "cuda")
    assert "NVIDIA" in info.name
    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", info.uuid)
    assert re.fullmatch(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.0", info.bus_id)
    assert re.fullmatch(r"sm_[0-9]{2,3}", info.isa)
    _free, total = cupy.cuda.runtime.memGetInfo()
    assert 0 < cuda.context_bytes < info.capacity <= total


def test_copies_are_timed_on_the_hosts_clock(cuda: CudaDevice) -> None:
    del EVENTS[:]
    pageable = np.random.default_rng(1).integers(0, 256, 64 * MIB, dtype=np.uint8)
    locked = np.frombuffer(cupy.cuda.alloc_pinned_memory(pageable.size), np.uint8, pageable.size)
    locked[:] = pageable
    before = time.monotonic_ns()
    with cuda.allocate(pageable.size, Purpose.WITNESS, ME) as buffer:
        for source in (pageable, locked):
            cuda.upload(buffer, source, Kind.UPLOAD_WITNESS, ME).wait()
        assert cuda.download(buffer, pageable.size, Kind.DOWNLOAD_RESULT, ME) == pageable.tobytes()
    after = time.monotonic_ns()
    spans = [event for event in EVENTS if isinstance(event, Span)]
    assert [(s.lane, s.bytes, s.pinned) for s in spans] == [
        (Lane.H2D, pageable.size, False),
        (Lane.H2D, pageable.size, True),
        (Lane.D2H, pageable.size, False),
    ]
    slack = 1_000_000
    for span in spans:
        assert before - slack <= span.start_ns < span.end_ns <= after + slack
        assert (span.device, span.job, span.partition, span.worker) == ("cuda:0", "job", 0, 1)
    assert all(a.end_ns <= b.start_ns + slack for a, b in itertools.pairwise(spans))


@functools.cache
def few_points(curve: Curve, group: int) -> list[bytes]:
    base = generator(curve, group)
    factors = (1, 2, 3, curve.r - 1, 0, 5, 12345)
    return [montgomery_bytes(curve, multiply(base, k, curve.q), group) for k in factors]


def small_points(curve: Curve, group: int, n: int) -> np.ndarray:
    """Multiples of the generator, infinity among them; a few distinct ones over and over."""
    few = few_points(curve, group)
    return np.frombuffer(b"".join(few[i * i % 7 if i < 50 else i % 7] for i in range(n)), np.uint8).reshape(n, -1)


@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("n", [0, 1, 2, 33, 3000])
def test_msm(cuda: CudaDevice, cpu: CpuDevice, curve: Curve, group: int, n: int, resident: bool) -> None:
    size = curve.g2_bytes if group == 2 else curve.g1_bytes
    points = small_points(curve, group, n) if n else np.zeros((0, size), np.uint8)
    points = points if resident else points.copy()
    scalars = random_scalars(curve, n + 3, n)
    found = []
    for device in (cpu, cuda, cuda):
        with put(device, scalars, Purpose.WITNESS) as values, device.allocate(size, Purpose.RESULT, ME) as result:
            device.launch(Msm(curve, group, points, values, 3, n, result), ME, CancelToken()).wait()
            found.append(device.download(result, size, Kind.DOWNLOAD_RESULT, ME))
    assert found[0] == found[1] == found[2]
    expected = {"srs"} if resident and n else set()
    assert set(cuda.memory().by_purpose) == {"context"} | expected


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("every", [0, 2, 5])
def test_points_at_infinity_are_left_out(
    cuda: CudaDevice, cpu: CpuDevice, curve: Curve, group: int, every: int
) -> None:
    """All of them, three of four or so: on resident points, scalars in natural and in bit-reversed order."""
    log_n = 10
    n, size = 1 << log_n, curve.g2_bytes if group == 2 else curve.g1_bytes
    few = few_points(curve, group)
    chosen = [few[i % 4] if every and i % every == 1 else bytes(size) for i in range(n)]
    points = np.frombuffer(b"".join(chosen), np.uint8).reshape(n, size)
    scalars = random_scalars(curve, n, 5)
    turned = scalars[[int(format(i, f"0{log_n}b")[::-1], 2) for i in range(n)]]
    found = []
    for device, values, is_reversed in ((cpu, scalars, False), (cuda, scalars, False), (cuda, turned, True)):
        with put(device, values) as buffer, device.allocate(size, Purpose.RESULT, ME) as result:
            if device is cuda:
                buffer.is_reversed = is_reversed
            device.launch(Msm(curve, group, points, buffer, 0, n, result), ME, CancelToken()).wait()
            found.append(device.download(result, size, Kind.DOWNLOAD_RESULT, ME))
    assert found[0] == found[1] == found[2]
    count = sum(map(any, chosen))
    assert cuda.memory().by_purpose.get("srs", 0) == count * (size + 4)


@pytest.mark.parametrize("threads", [1, 2])
def test_sums_from_other_threads(cuda: CudaDevice, cpu: CpuDevice, curve: Curve, threads: int) -> None:
    """Which have no context of their own."""
    n, size = 5000, curve.g1_bytes
    points, scalars = small_points(curve, 1, n), random_scalars(curve, n, 4)
    found: list[bytes] = []

    def work(device: Device, times: int) -> None:
        for _ in range(times):
            with put(device, scalars, Purpose.WITNESS) as values, device.allocate(size, Purpose.RESULT, ME) as result:
                device.launch(Msm(curve, 1, points, values, 0, n, result), ME, CancelToken()).wait()
                found.append(device.download(result, size, Kind.DOWNLOAD_RESULT, ME))

    workers = [threading.Thread(target=work, args=(cuda, 5)) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    work(cpu, 1)
    assert found == [found[-1]] * (5 * threads + 1)


@pytest.mark.parametrize("log_n", [1, 2, 3, 8, 11, 14])
def test_transforms(cuda: CudaDevice, cpu: CpuDevice, curve: Curve, log_n: int) -> None:
    n, token = 1 << log_n, CancelToken()
    vectors = [random_scalars(curve, n, seed) for seed in (1, 2, 3)]
    found = []
    for device in (cpu, cuda):
        with device.allocate(device.table_bytes(curve, log_n), Purpose.NTT, ME) as table:
            device.launch(NttTable(curve, log_n, table), ME, token).wait()
            results = []
            for last in ("none", "join", "quotient"):
                a, b, c = (put(device, vector) for vector in vectors)
                for vector in (a, b, c):
                    device.launch(CosetExtend(curve, vector, log_n, table), ME, token)
                if last == "join":
                    device.launch(HJoin(curve, a, b, c, n), ME, token).wait()
                if last == "quotient":
                    device.launch(Quotient(curve, a, b, c, log_n, table), ME, token).wait()
                if isinstance(device, CudaDevice):
                    device.restore(curve, a, ME, table)
                results.append(device.download(a, a.nbytes, Kind.DOWNLOAD_RESULT, ME))
                for vector in (a, b, c):
                    vector.free()
            found.append(results)
    assert found[0] == found[1]


@pytest.mark.parametrize("name", [("bn128", "merkle10"), ("bls12381", "merkle10"), ("bn128", "mul_none")])
def test_evaluation_and_h(cuda: CudaDevice, cpu: CpuDevice, name: tuple[str, str]) -> None:
    item = case(*name)
    zkey, witness = ZKey.open(item.path("circuit.zkey")), Witness.open(item.path("witness.wtns"))
    order = check_coefficients(zkey, 0, CancelToken())
    curve, n, token = zkey.curve, zkey.domain_size, CancelToken()
    log_n = n.bit_length() - 1
    found = []
    for device in (cpu, cuda, cuda):
        with device.allocate(device.table_bytes(curve, log_n), Purpose.NTT, ME) as table:
            device.launch(NttTable(curve, log_n, table), ME, token).wait()
            w = put(device, witness.raw, Purpose.WITNESS)
            results = []
            for joined in (False, True):
                a, b, c = (device.allocate(32 * n, Purpose.ABC, ME) for _ in "abc")
                device.launch(Evaluate(curve, zkey.coefficients, order, w, a, b, c, n), ME, token).wait()
                if joined:
                    for vector in (a, b, c):
                        device.launch(CosetExtend(curve, vector, log_n, table), ME, token)
                    device.launch(HJoin(curve, a, b, c, n), ME, token).wait()
                for vector in (a,) if joined else (a, b, c):
                    if isinstance(device, CudaDevice):
                        device.restore(curve, vector, ME, table)
                    results.append(device.download(vector, vector.nbytes, Kind.DOWNLOAD_RESULT, ME))
                for vector in (a, b, c):
                    vector.free()
            w.free()
            found.append(results)
    assert found[0] == found[1] == found[2]
    assert cuda.memory().by_purpose.keys() == {"context", "matrices"}


def test_memory_that_is_refused_and_given_back(cuda: CudaDevice) -> None:
    cuda.ledger.reset_peak()
    before = len(EVENTS)
    free = cuda.info.capacity - cuda.memory().used
    with pytest.raises(OutOfDeviceMemoryError) as refusal:
        cuda.allocate(free + 1, Purpose.ABC, ME)
    assert (refusal.value.requested, refusal.value.free) == (free + 1, free)
    with pytest.raises(MemoryPlanError):
        cuda.reserve(cuda.info.capacity, 1, ME, CancelToken())
    for _ in range(3):
        with cuda.allocate(free * 3 // 4, Purpose.ABC, ME) as buffer:
            assert cuda.memory().by_purpose["abc"] == buffer.nbytes
    deltas = [event.delta for event in EVENTS[before:] if isinstance(event, Allocation)]
    assert deltas == [free * 3 // 4, -(free * 3 // 4)] * 3
    assert cuda.memory().peak == cuda.context_bytes + free * 3 // 4


def test_points_make_room(curve: Curve) -> None:
    device = CudaDevice(0, KERNELS, limit=64 * MIB)
    try:
        points = small_points(curve, 1, 100_000)
        with (
            put(device, random_scalars(curve, 10, 1)) as scalars,
            device.allocate(curve.g1_bytes, Purpose.RESULT, ME) as result,
        ):
            device.launch(Msm(curve, 1, points[50:60], scalars, 0, 10, result), ME, CancelToken()).wait()
        assert device.memory().by_purpose["srs"] == 10 * curve.g1_bytes
        room = device.info.capacity - device.context_bytes
        with device.reserve(room, 0, ME, CancelToken()):
            assert "srs" not in device.memory().by_purpose
    finally:
        device.close()
    assert device.memory().used == 0


_FAULT = """
import sys
from pathlib import Path
import cupy
from cuzk_engine.devices.base import Owner
from cuzk_engine.devices.cuda.device import CudaDevice
from cuzk_engine.errors import DeviceLostError
from cuzk_engine.events import Incident, Kind, Purpose
events = []
device = CudaDevice(0, Path(sys.argv[1]), events.append)
buffer = device.allocate(64, Purpose.ABC, Owner())
kernel = cupy.RawKernel('extern "C" __global__ void fault(int *p) { *p = 1; }', "fault")
kernel((1,), (1,), (cupy.uint64(64),))
try:
    cupy.cuda.runtime.deviceSynchronize()
except cupy.cuda.runtime.CUDARuntimeError as error:
    assert error.status == 700
for _ in range(2):
    try:
        device.download(buffer, 64, Kind.DOWNLOAD_RESULT, Owner())
    except DeviceLostError as error:
        print(error.name, error.code, error)
buffer.free()
device.close()
print([event.kind for event in events if isinstance(event, Incident)])
"""


def test_a_fault_of_a_kernel_is_told_apart() -> None:
    command = [sys.executable, "-c", _FAULT, str(KERNELS)]
    root = Path(__file__).resolve().parents[2]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=root)
    lines = result.stdout.splitlines()
    assert len(lines) == 3, result.stderr
    assert lines[0] == lines[1]
    assert "cudaErrorIllegalAddress 700 device cuda:0: lost after" in lines[0]
    assert lines[2] == "['device-lost']"


def test_a_coefficient_that_is_out_of_range(cuda: CudaDevice, curve: Curve) -> None:
    section = np.zeros((2, 44), np.uint8)
    section[1, 0] = 2
    with (
        put(cuda, random_scalars(curve, 4, 1)) as w,
        cuda.allocate(3 * 128, Purpose.ABC, ME) as out,
        pytest.raises((ValueError, CuzkError), match="coefficient 1"),
    ):
        cuda.launch(Evaluate(curve, section, None, w, out, out, out, 4), ME, CancelToken())
