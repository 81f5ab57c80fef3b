"""bellperson's keys: every point checked and named, the circuit held against the key, proofs that verify."""

import dataclasses

import numpy as np
import pytest

from cuzk_engine import key_checks, params_keys
from cuzk_engine.curves import BLS12_381
from cuzk_engine.devices.arena import Capacity
from cuzk_engine.devices.base import CancelToken, Owner
from cuzk_engine.devices.cpu import CpuDevice
from cuzk_engine.errors import CancelledError, FormatError, ProofInvalidError
from cuzk_engine.formats.params import Params
from cuzk_engine.formats.source import SourceFile
from cuzk_engine.groth16.plan import Query
from cuzk_engine.groth16.verify import PreparedKey
from cuzk_engine.keys import CheckedKeys, KeyCache
from cuzk_engine.native import Call, Group, PointFault, PointProblem
from cuzk_engine.params_keys import check_points, load_params
from cuzk_engine.runner import Evaluation, PipelineSettings, Runner
from tests.formats.builders import put
from tests.kernels.test_points import find_point
from tests.support.arithmetic import CurveMath
from tests.support.bellperson import SECTIONS, ToyKey, make_toy, section_places

TOY = make_toy(5, 3, 20)
KEY = ToyKey.of(TOY)
DATA = KEY.params()
PLACES = section_places(DATA)


@pytest.fixture
def files(tmp_path):
    """Key, circuit and witness in a folder."""
    (tmp_path / "key.params").write_bytes(DATA)
    (tmp_path / "circuit.r1cs").write_bytes(TOY.r1cs())
    (tmp_path / "circuit.pce").write_bytes(TOY.pce())
    (tmp_path / "witness.wtns").write_bytes(TOY.wtns())
    return tmp_path


@pytest.fixture
def runner():
    device = CpuDevice(Capacity(1 << 30, "test"))
    yield Runner(device, KeyCache())
    device.close()


def check(data):
    check_points(Params.from_source(SourceFile.from_buffer(data, "key.params")), 0, CancelToken())


def refused(data):
    with pytest.raises(FormatError) as caught:
        check(data)
    return str(caught.value)


def point_at(name, index):
    offset, count, size = PLACES[name]
    assert index < count
    return offset + index * size, size


def test_a_good_key():
    check(DATA)


@pytest.mark.parametrize("name", SECTIONS)
def test_a_bit_flipped_in_a_point_of_each_section(name):
    count = PLACES[name][1]
    for index in {0, count // 2, count - 1}:
        offset, size = point_at(name, index)
        for bit in (0, 8 * 47 + 3, 8 * size - 1):
            at = offset + bit // 8
            message = refused(put(at, DATA[at] ^ 1 << bit % 8, 1)(DATA))
            assert message.startswith(f"key.params: section {name}, point {index}: ")


@pytest.mark.parametrize("name", SECTIONS)
def test_points_that_may_not_be(name):
    group = Group.G2 if name == "b_g2" else Group.G1
    offset, size = point_at(name, PLACES[name][1] - 1)
    where = f"key.params: section {name}, point {PLACES[name][1] - 1}: "
    good = DATA[offset : offset + size]
    stray = find_point(CurveMath(BLS12_381, group), 77)
    values = stray if group is Group.G1 else (stray[0][1], stray[0][0], stray[1][1], stray[1][0])
    for new, fault in (
        (b"\x40" + bytes(size - 1), "is infinity, which a bellperson key never holds"),
        (BLS12_381.q.to_bytes(48, "big"), "a coordinate is not below the prime of the base field"),
        (good[:-48] + (BLS12_381.q + 1).to_bytes(48, "big"), "a coordinate is not below the prime of the base field"),
        (bytes([good[0] | 0x80]), "has a flag that uncompressed points do not have"),
        (bytes([good[0] | 0x20]), "has a flag that uncompressed points do not have"),
        (bytes(size), "is not on its curve"),
        (b"".join(value.to_bytes(48, "big") for value in values), "is not of the group's order"),
    ):
        assert refused(DATA[:offset] + new + DATA[offset + len(new) :]) == where + fault


def test_points_of_the_header_are_checked():
    for offset, name, group in ((0, "alpha_g1", 1), (192, "beta_g2", 2), (672, "delta_g2", 2)):
        at = offset + 96 * group - 1
        assert refused(put(at, DATA[at] ^ 1, 1)(DATA)) == f"key.params: header, {name}: is not on its curve"


@pytest.mark.parametrize("group", Group)
def test_strays_among_many_points(group):
    math = CurveMath(BLS12_381, group)
    some = math.encode(math.multiples(50)).reshape(50, -1)
    points = np.ascontiguousarray(some[np.arange(3000) % 50])
    assert params_keys.find_stray(group, points, 0, CancelToken()) is None
    for places in ((2999,), (0,), (1234, 1235, 2800), (700,)):
        bad = points.copy()
        for place in places:
            bad[place] = math.encode([find_point(math, 5)])
        problem = params_keys.find_stray(group, bad, 0, CancelToken())
        assert problem == PointProblem(places[0], PointFault.SUBGROUP)


def test_progress_and_cancellation(monkeypatch):
    monkeypatch.setattr(params_keys, "_CHECKED_AT_ONCE", 7 * 96)
    key = Params.from_source(SourceFile.from_buffer(DATA, "key.params"))
    seen = []
    check_points(key, 0, CancelToken(), seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1
    assert len(seen) > 10
    token = CancelToken()
    with pytest.raises(CancelledError):
        check_points(key, 0, token, lambda share: token.set() if share > 0.3 else None)


def test_what_was_checked_is_remembered(files, monkeypatch):
    counted = []
    original = params_keys.check_points
    monkeypatch.setattr(params_keys, "check_points", lambda *args: (counted.append(1), original(*args)))
    monkeypatch.setattr(key_checks, "_SETTLED_NS", 0)
    for _ in range(2):
        load_params(files / "key.params", files / "circuit.pce", CheckedKeys())
    assert len(counted) == 1


def test_the_cache_knows_key_and_circuit(files):
    cache = KeyCache()
    first = cache.get(files / "key.params", circuit=files / "circuit.r1cs")
    assert cache.get(files / "key.params", circuit=files / "circuit.r1cs") is first
    second = cache.get(files / "key.params", circuit=files / "circuit.pce")
    assert second is not first
    assert [key.file_bytes for key in cache.loaded()] == [len(DATA)] * 2
    (files / "circuit.pce").write_bytes(TOY.pce())  # written anew
    assert not second.is_unchanged()
    assert cache.get(files / "key.params", circuit=files / "circuit.pce") is not second
    cache.evict(files / "key.params")
    assert cache.loaded() == []


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (make_toy(5, 4, 20), "section ic has 3 points, the circuit .* needs 4"),
        (make_toy(5, 3, 21), "section l has 20 points, the circuit .* needs 21"),
        (make_toy(6, 3, 20), "section (a|b_g1) has .* points, the circuit .* needs"),
        (dataclasses.replace(TOY, rows=TOY.rows * 2), "section h has 31 points, the circuit .* needs 63"),
    ],
)
def test_a_circuit_of_another_key(files, other, message):
    (files / "circuit.r1cs").write_bytes(other.r1cs())
    with pytest.raises(FormatError, match=f"{message}.*the key belongs to another circuit"):
        load_params(files / "key.params", files / "circuit.r1cs", CheckedKeys())


@pytest.mark.parametrize("circuit", ["circuit.r1cs", "circuit.pce"])
def test_proofs_verify(files, runner, circuit):
    key = PreparedKey(Params.open(files / "key.params").verification_key())
    seen = []
    for evaluate in Evaluation:
        outcome = runner.prove(
            files / "key.params",
            files / "witness.wtns",
            Owner(),
            PipelineSettings(evaluate=evaluate),
            lambda phase, share: seen.append(share),
            circuit=files / circuit,
        )
        assert list(outcome.public.values) == TOY.public
        key.verify(outcome.public.values, outcome.proof)
        with pytest.raises(ProofInvalidError):
            key.verify([outcome.public.values[0] ^ 1, *outcome.public.values[1:]], outcome.proof)
    assert seen[-1] == pytest.approx(1)
    runner.release_caches()
    assert runner.device.memory().used == runner.host_memory.memory().used == 0


@pytest.mark.parametrize(("inputs", "aux"), [(1, 1), (1, 5), (2, 0), (9, 1), (4, 60), (17, 130)])
def test_circuits_of_many_sizes(tmp_path, runner, inputs, aux):
    toy = make_toy(inputs * 1000 + aux, inputs, aux)
    paths = [tmp_path / name for name in ("key.params", "witness.wtns", "circuit.r1cs")]
    for path, content in zip(paths, (ToyKey.of(toy).params(), toy.wtns(), toy.r1cs()), strict=True):
        path.write_bytes(content)
    outcome = runner.prove(paths[0], paths[1], Owner(), circuit=paths[2])
    assert list(outcome.public.values) == toy.public


def test_queries_are_summed_in_parts(tmp_path, runner, monkeypatch):
    """Parts of 64 points: nothing depends on where a query is cut, nor on how it was cut before."""
    toy = make_toy(8, 5, 300)
    for name, content in (("key.params", ToyKey.of(toy).params()), ("w", toy.wtns()), ("c", toy.pce())):
        (tmp_path / name).write_bytes(content)
    runner.prove(tmp_path / "key.params", tmp_path / "w", Owner(), circuit=tmp_path / "c")
    runner.release_caches()
    monkeypatch.setattr(params_keys, "STAGING_BYTES", 96 * 130)
    outcome = runner.prove(tmp_path / "key.params", tmp_path / "w", Owner(), circuit=tmp_path / "c")
    assert list(outcome.public.values) == toy.public
    (key,) = runner.keys.loaded()
    assert [(part.first, part.n) for part in key.ranges(Query.L)] == [(0, 128), (128, 128), (256, 44)]
    assert [(part.first, part.n) for part in key.ranges(Query.B2)] == [(k, min(64, 305 - k)) for k in range(0, 305, 64)]
    assert key.staging_bytes == 96 * 128
    assert {part.n for part in key.sizes.launches(Query.B2, 1 << 20)} == {64, 49}


def test_points_are_not_written_beyond_their_staging(files, runner):
    runner.prove(files / "key.params", files / "witness.wtns", Owner(), circuit=files / "circuit.pce")
    (key,) = runner.keys.loaded()
    part = key.ranges(Query.A)[0]
    staging = np.zeros(part.n * BLS12_381.g1_bytes - 1, np.uint8)
    with pytest.raises(ValueError, match=f"bytes for {part.n} points of 96"):
        key.points(Query.A, part, staging, Call())


def test_a_witness_that_violates_the_circuit(files, runner):
    (target,) = TOY.rows[4][2]
    (files / "witness.wtns").write_bytes(TOY.with_value(target, 5).wtns())
    message = r"does not satisfy the circuit: constraint \d+ of .*circuit.pce, counted from 0, is the first"
    with pytest.raises(ProofInvalidError, match=message):
        runner.prove(files / "key.params", files / "witness.wtns", Owner(), circuit=files / "circuit.pce")
    assert runner.device.memory().used == runner.host_memory.memory().used == 0


def test_a_witness_of_another_length(files, runner):
    (files / "witness.wtns").write_bytes(make_toy(5, 3, 19).wtns())
    with pytest.raises(FormatError, match=r"has 22 values, the circuit of the key .*key.params has 23 signals"):
        runner.prove(files / "key.params", files / "witness.wtns", Owner(), circuit=files / "circuit.pce")


def test_a_key_of_another_circuit_with_the_same_counts(files, runner):
    rows = [({**a, 0: 3}, b, c) if 0 in a else (a, b, c) for a, b, c in TOY.rows]
    values, known = TOY.values[:5], dict(enumerate(TOY.values[:5]))
    for a, b, c in rows[: len(TOY.rows) - 2]:
        (target,) = c
        known[target] = sum(known[k] * v for k, v in a.items()) * sum(known[k] * v for k, v in b.items()) % BLS12_381.r
    values = [known[k] for k in range(TOY.n_vars)]
    other = dataclasses.replace(TOY, rows=rows, values=values)
    assert other.values != TOY.values
    (files / "circuit.r1cs").write_bytes(other.r1cs())
    (files / "witness.wtns").write_bytes(other.wtns())
    with pytest.raises(ProofInvalidError, match=r"it satisfies .*circuit.r1cs, so the key belongs to another circuit"):
        runner.prove(files / "key.params", files / "witness.wtns", Owner(), circuit=files / "circuit.r1cs")


def test_a_key_that_is_damaged_after_it_was_checked(files, runner, monkeypatch):
    """What the memory of earlier checks lets through never becomes a proof."""
    monkeypatch.setattr(params_keys, "check_points", lambda *args: None)
    offset, _ = point_at("l", 3)
    (files / "key.params").write_bytes(put(offset + 95, DATA[offset + 95] ^ 1, 1)(DATA))
    with pytest.raises(FormatError, match="section l, point 3: is not on its curve; the file changed after"):
        runner.prove(files / "key.params", files / "witness.wtns", Owner(), circuit=files / "circuit.r1cs")
    other, _ = point_at("l", 4)
    swapped = DATA[:offset] + DATA[other : other + 96] + DATA[offset + 96 :]
    (files / "key.params").write_bytes(swapped)
    with pytest.raises(ProofInvalidError):
        runner.prove(files / "key.params", files / "witness.wtns", Owner(), circuit=files / "circuit.r1cs")


def test_cancellation_gives_all_memory_back(files, runner):
    token = CancelToken()
    with pytest.raises(CancelledError):
        runner.prove(
            files / "key.params",
            files / "witness.wtns",
            Owner(),
            progress=lambda phase, share: token.set() if phase == "msm" else None,
            cancel=token,
            circuit=files / "circuit.r1cs",
        )
    runner.release_caches()
    assert runner.device.memory().used == runner.host_memory.memory().used == 0
