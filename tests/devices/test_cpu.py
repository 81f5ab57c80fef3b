"""The CPU device: real copies, operations on buffers, spans on lanes, and a limit that holds."""

import threading

import numpy as np
import pytest

from cuzk_engine.curves import BLS12_381, BN254, CURVES
from cuzk_engine.devices import memory
from cuzk_engine.devices.arena import Capacity
from cuzk_engine.devices.base import CancelToken, CosetExtend, HJoin, Msm, NttTable, Owner
from cuzk_engine.devices.cpu import CpuDevice, processor_name
from cuzk_engine.devices.cuda import probe
from cuzk_engine.devices.memory import Spare
from cuzk_engine.devices.select import open_device
from cuzk_engine.devices.tables import TableCache
from cuzk_engine.errors import CancelledError, CuzkError, OutOfDeviceMemoryError, UsageError
from cuzk_engine.events import Allocation, Kind, Lane, Purpose, Span
from cuzk_engine.native import Field, Group, aligned
from tests.support.arithmetic import CurveMath, FieldMath, encode_scalars

ME = Owner("job", 0, 1)
curves = pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)


@pytest.fixture
def events():
    return []


@pytest.fixture
def device(events):
    device = CpuDevice(Capacity(64 << 20, "cpu.arena"), events.append)
    yield device
    assert device.memory().used == 0
    device.close()


def filled(device, data, purpose=Purpose.ABC):
    buffer = device.allocate(data.nbytes, purpose, ME)
    device.upload(buffer, data, Kind.UPLOAD_ABC, ME).wait()
    return buffer


def test_copies_are_real_and_timed(device, events):
    data = np.random.default_rng(1).integers(0, 256, 10_000_000, dtype=np.uint8)
    with device.allocate(data.nbytes, Purpose.WITNESS, ME) as buffer:
        assert buffer.data.ctypes.data % 64 == 0
        device.upload(buffer, data, Kind.UPLOAD_WITNESS, ME)
        assert device.download(buffer, data.nbytes, Kind.DOWNLOAD_RESULT, ME) == data.tobytes()
    up, down = (event for event in events if isinstance(event, Span))
    assert (up.lane, up.kind, up.bytes, up.pinned) == (Lane.H2D, Kind.UPLOAD_WITNESS, data.nbytes, False)
    assert (down.lane, down.kind, down.bytes) == (Lane.D2H, Kind.DOWNLOAD_RESULT, data.nbytes)
    assert up.start_ns < up.end_ns <= down.start_ns < down.end_ns
    assert (up.job, up.partition, up.worker, up.device) == ("job", 0, 1, "cpu")
    assert [event.delta for event in events if isinstance(event, Allocation)] == [data.nbytes, -data.nbytes]


def test_the_limit_holds(device):
    with device.allocate(60 << 20, Purpose.ABC, ME):
        with pytest.raises(OutOfDeviceMemoryError) as refusal:
            device.allocate(5 << 20, Purpose.MSM, ME)
        assert (refusal.value.requested, refusal.value.free) == (5 << 20, 4 << 20)
        device.allocate(4 << 20, Purpose.MSM, ME).free()
    assert device.memory().peak == 64 << 20


def test_memory_that_the_machine_does_not_have():
    """The limit may be set above what the system gives: that is an error with numbers, too."""
    device = CpuDevice(Capacity(1 << 62, "cpu.arena"))
    with pytest.raises(OutOfDeviceMemoryError):
        device.allocate(1 << 61, Purpose.ABC, ME)
    assert device.memory().used == 0


def test_misuse_is_refused(device):
    buffer = device.allocate(64, Purpose.ABC, ME)
    with pytest.raises(ValueError, match="do not fit"):
        device.upload(buffer, np.zeros(65, np.uint8), Kind.UPLOAD_ABC, ME)
    with pytest.raises(ValueError, match="the operation needs 128"):
        device.launch(HJoin(BN254, buffer, buffer, buffer, 4), ME, CancelToken())
    with pytest.raises(ValueError, match="2 points for 3 scalars"):
        device.launch(Msm(BN254, 1, np.zeros((2, 64), np.uint8), buffer, 0, 3, buffer), ME, CancelToken())
    with pytest.raises(ValueError, match="the operation needs 96"):  # 2 scalars that start at the second of 2
        device.launch(Msm(BN254, 1, np.zeros((2, 64), np.uint8), buffer, 1, 2, buffer), ME, CancelToken())
    buffer.free()
    buffer.free()
    with pytest.raises(ValueError, match="freed buffer"):
        device.download(buffer, 64, Kind.DOWNLOAD_RESULT, ME)


@curves
def test_transforms_against_python(device, curve, events):
    """CosetExtend: the polynomial through the values on the domain, evaluated on the odd coset."""
    log_n, n = 3, 8
    fr, p = FieldMath(curve, Field.FR), curve.r
    root = _root_of_unity(curve, log_n + 1)
    values = [(7 * index * index + 3) % p for index in range(n)]
    omega = root * root % p
    inverse_n = pow(n, -1, p)
    coefficients = [sum(values[j] * pow(omega, -i * j, p) for j in range(n)) * inverse_n % p for i in range(n)]
    expected = [sum(c * pow(root, (2 * j + 1) * i, p) for i, c in enumerate(coefficients)) % p for j in range(n)]
    table = device.allocate(device.table_bytes(curve, log_n), Purpose.NTT, ME)
    data = filled(device, fr.encode_mont(values))
    with table, data:
        device.launch(NttTable(curve, log_n, table), ME, CancelToken()).wait()
        device.launch(CosetExtend(curve, data, log_n, table), ME, CancelToken()).wait()
        raw = np.frombuffer(device.download(data, data.nbytes, Kind.DOWNLOAD_RESULT, ME), np.uint8)
        assert fr.decode_mont(raw) == expected
    kinds = {event.kind for event in events if isinstance(event, Span) and event.lane == Lane.COMPUTE}
    assert Kind.NTT in kinds


def _root_of_unity(curve, log_n):
    """Of order 2^log_n, as snarkjs chooses it."""
    p = curve.r
    non_residue = next(x for x in range(2, 100) if pow(x, (p - 1) // 2, p) == p - 1)
    root = pow(non_residue, (p - 1) >> curve.two_adicity, p)
    return pow(root, 1 << (curve.two_adicity - log_n), p)


@curves
@pytest.mark.parametrize("group", [Group.G1, Group.G2], ids=lambda group: group.name)
def test_msm_takes_its_scratch_from_the_ledger(device, events, curve, group):
    points = CurveMath(curve, group)
    scalars = [5, 0, 1, curve.r - 1, 12345]
    some = points.multiples(len(scalars))
    raw = points.encode(some[1:4]).reshape(3, -1)
    result = device.allocate(raw.shape[1], Purpose.RESULT, ME)
    with filled(device, encode_scalars(scalars), Purpose.WITNESS) as buffer, result:
        device.launch(Msm(curve, int(group), raw, buffer, 1, 3, result), ME, CancelToken()).wait()
        found = np.frombuffer(device.download(result, result.nbytes, Kind.DOWNLOAD_RESULT, ME), np.uint8)
    total = None
    for scalar, point in zip(scalars[1:4], some[1:4], strict=True):
        total = points.add(total, points.mul(point, scalar))
    assert points.decode(found) == [total]
    scratch = [event.delta for event in events if isinstance(event, Allocation) and event.purpose == Purpose.MSM]
    assert scratch == [device.msm_need(curve, int(group), 3, 3, resident=True).scratch, -scratch[0]]
    kinds = {event.kind for event in events if isinstance(event, Span) and event.lane == Lane.COMPUTE}
    assert kinds
    assert kinds <= {Kind.MSM_DIGITS, Kind.MSM_ACCUMULATE, Kind.MSM_REDUCE}


def test_workers_take_turns_with_one_scratch(device, monkeypatch):
    """Else each of their threads leaves one in a heap of its own."""
    made = []
    monkeypatch.setattr(memory, "aligned", lambda nbytes: made.append(nbytes) or aligned(nbytes))

    def prove(worker):
        owner = Owner("job", worker, worker)
        with filled(device, encode_scalars([1, 2])) as scalars, device.allocate(64, Purpose.RESULT, owner) as result:
            del made[-2:]
            for n in (2, 1):
                points = np.zeros((n, 64), np.uint8)
                device.launch(Msm(BN254, 1, points, scalars, 0, n, result), owner, CancelToken())

    for worker in range(3):
        thread = threading.Thread(target=prove, args=(worker,))
        thread.start()
        thread.join()
    assert len(made) == 1


def test_large_scratch_is_not_kept():
    spare = Spare(100)
    block = spare.take(100)
    spare.put(block)
    assert spare.take(50) is block
    assert spare.take(50) is not block  # it is in use
    spare.put(spare.take(101))
    assert spare.take(10).size == 10


def test_the_largest_scratch_is_kept():
    spare = Spare(100)
    small, large = spare.take(10), spare.take(20)
    for block in (small, large, small):
        spare.put(block)
    assert spare.take(1) is large


def test_a_cancelled_launch_takes_nothing(device):
    token = CancelToken()
    token.set()
    with device.allocate(64, Purpose.ABC, ME) as buffer, pytest.raises(CancelledError):
        device.launch(Msm(BN254, 1, np.zeros((2, 64), np.uint8), buffer, 0, 2, buffer), ME, token)


def test_tables_stay_and_make_room(events):
    device = CpuDevice(Capacity(1 << 20, "cpu.arena"), events.append)
    tables = TableCache(device)
    nbytes = device.table_bytes(BN254, 10)

    def use(curve, log_n):
        with (
            device.reserve(device.table_bytes(curve, log_n), 0, ME, CancelToken()) as reservation,
            tables.use(curve, log_n, reservation, ME, CancelToken()) as table,
        ):
            return table

    first = use(BN254, 10)
    assert use(BN254, 10) is first
    assert device.memory().by_purpose == {"ntt": nbytes}
    assert use(BLS12_381, 10) is not first
    both = device.memory().used
    # What nobody uses goes when memory is short.
    with device.reserve((1 << 20) - both + 1, 0, ME, CancelToken()):
        assert device.memory().used < both
    tables.clear()
    assert device.memory().used == 0
    belongs = {(event.worker, event.job) for event in events if isinstance(event, Allocation)}
    assert belongs == {(-1, "")}


def test_a_table_that_cannot_be_computed_leaves_nothing():
    device = CpuDevice(Capacity(1 << 20, "cpu.arena"))
    tables, cancel = TableCache(device), CancelToken()
    cancel.set()
    nbytes = device.table_bytes(BN254, 10)
    with (
        device.reserve(nbytes, 0, ME, CancelToken()) as reservation,
        pytest.raises(CancelledError),
        tables.use(BN254, 10, reservation, ME, cancel),
    ):
        pytest.fail("the table was never computed")
    assert device.memory().used == device.ledger.committed == 0


def test_information(device):
    info = device.info
    assert (info.id, info.kind, info.capacity, info.capacity_source) == ("cpu", "cpu", 64 << 20, "cpu.arena")
    assert info.isa
    assert "pipeline.double_buffer" in info.inert_settings


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor\t: 0\nmodel name\t: Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz\n", "Intel Xeon E5-2680 v4"),
        ("model name\t: AMD EPYC\nmodel name\t: AMD EPYC\n", "AMD EPYC"),
        ("Hardware\t: BCM2835\nModel\t\t: Raspberry Pi 4\n", "Raspberry Pi 4"),
        ("nothing here\n", "CPU"),
    ],
)
def test_processor_name(tmp_path, text, name):
    (tmp_path / "cpuinfo").write_text(text)
    assert processor_name(tmp_path / "cpuinfo") == name
    assert processor_name(tmp_path / "missing") == "CPU"


def test_names_of_devices(monkeypatch):
    monkeypatch.setattr(probe, "read_driver", lambda: None)
    for name in ("auto", "cpu"):
        device = open_device(name)
        assert device.info.id == "cpu"
        device.close()
    with pytest.raises(CuzkError, match="device cuda:0 cannot be used: no NVIDIA driver was found"):
        open_device("cuda:0")
    for name in ("gpu", "cuda", "cuda:", "cuda:-1", "cuda:01", "CPU", ""):
        with pytest.raises(UsageError, match="expected auto, cpu or cuda:N"):
            open_device(name)
