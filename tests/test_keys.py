"""Keys: every point and coefficient checked, once for each content, and never an old key for a new file."""

import json
import os
import shutil
import struct
import threading

import pytest

from cuzk_engine import key_checks, keys
from cuzk_engine.curves import BLS12_381, BN254, CURVES
from cuzk_engine.devices.base import CancelToken
from cuzk_engine.errors import CancelledError, FormatError
from cuzk_engine.formats.source import FileIdentity
from cuzk_engine.formats.zkey import ZKEY_SPEC
from cuzk_engine.groth16.density import Densities, count_densities, count_general, count_present
from cuzk_engine.groth16.plan import Query
from cuzk_engine.key_checks import CheckedKeys
from cuzk_engine.keys import KeyCache
from tests.formats.builders import Parts, put
from tests.support.cases import BROKEN, CASES, case

POINT_SECTIONS = (3, 5, 6, 7, 8, 9)
curves = pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)


def parts_of(curve, name="mul_pub"):
    return Parts.of(case(curve.snarkjs_name, name).path("circuit.zkey").read_bytes())


def written(folder, parts, name="circuit.zkey"):
    path = folder / name
    path.write_bytes(parts.build())
    return path


def old(path):
    """Makes the file look as if it had been written long ago, as most keys were."""
    os.utime(path, (1_600_000_000, 1_600_000_000))


@pytest.fixture
def checks(monkeypatch):
    """How often points were checked and files hashed. Files count as settled at once: times cannot be set back."""
    counts = {"points": 0, "hash": 0}
    check_points, content_hash = keys.check_points, keys.content_hash

    def counted_points(*args):
        counts["points"] += 1
        check_points(*args)

    def counted_hash(*args):
        counts["hash"] += 1
        return content_hash(*args)

    monkeypatch.setattr(keys, "check_points", counted_points)
    monkeypatch.setattr(keys, "content_hash", counted_hash)
    monkeypatch.setattr(key_checks, "_SETTLED_NS", 0)
    return counts


@pytest.mark.parametrize("item", CASES, ids=str)
def test_real_keys_pass(item):
    key = KeyCache().get(item.path("circuit.zkey"))
    assert key.order is None
    assert key.sizes.n_vars == item.facts["n_vars"]
    assert key.verification_key.vkey.n_public == item.facts["n_public"]


@curves
@pytest.mark.parametrize("section", POINT_SECTIONS)
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_a_flipped_bit_in_a_point_is_named(tmp_path, curve, section, last):
    size = curve.g2_bytes if section == 7 else curve.g1_bytes
    parts = parts_of(curve)
    count = len(parts.get(section)) // size
    # An all-zero point is infinity: the last one of this section that is not.
    points = [parts.get(section)[index * size : (index + 1) * size] for index in range(count)]
    candidates = [index for index, point in enumerate(points) if any(point)]
    index = candidates[-1 if last else 0]

    def flip(payload):
        position = index * size + 3
        return payload[:position] + bytes([payload[position] ^ 0x10]) + payload[position + 1 :]

    path = written(tmp_path, parts.replace(section, flip))
    with pytest.raises(FormatError) as caught:
        KeyCache().get(path)
    name = ZKEY_SPEC.names[section]
    assert str(caught.value) == f"{path}: section {section} ({name}), point {index:,}: is not on its curve"


@curves
def test_a_coordinate_that_is_too_large_is_named(tmp_path, curve):
    path = written(tmp_path, parts_of(curve).replace(9, put(curve.g1_bytes * 2, curve.q, curve.n8q)))
    with pytest.raises(FormatError, match=r"section 9 \(H query\), point 2: a coordinate is not below the prime"):
        KeyCache().get(path)


@curves
@pytest.mark.parametrize("name", ["alpha1", "beta1", "beta2", "gamma2", "delta1", "delta2"])
def test_points_of_the_header_are_named(tmp_path, curve, name):
    g1, g2 = curve.g1_bytes, curve.g2_bytes
    sizes = {"alpha1": g1, "beta1": g1, "beta2": g2, "gamma2": g2, "delta1": g1, "delta2": g2}
    offset = 4 + curve.n8q + 4 + 32 + 12
    for other, size in sizes.items():
        if other == name:
            break
        offset += size

    def flip(payload):
        return payload[: offset + 1] + bytes([payload[offset + 1] ^ 1]) + payload[offset + 2 :]

    path = written(tmp_path, parts_of(curve).replace(2, flip))
    with pytest.raises(FormatError, match=rf"section 2 \(header\), {name}: is not on its curve"):
        KeyCache().get(path)


@pytest.mark.parametrize(
    ("offset", "value", "size", "message"),
    [
        (0, 2, 4, "matrix is 2, expected 0 (A) or 1 (B)"),
        (0, 2**32 - 1, 4, "matrix is 4,294,967,295"),
        (4, 16, 4, "constraint is 16, expected below the domain size 16"),
        (8, 8, 4, "signal is 8, expected below the number of signals 8"),
        (8, 2**32 - 1, 4, "signal is 4,294,967,295"),
        (12, BN254.r, 32, "the coefficient is not below the prime of BN254's scalar field"),
    ],
)
def test_bad_coefficients_are_named(tmp_path, offset, value, size, message):
    path = written(tmp_path, parts_of(BN254).replace(4, put(4 + 3 * 44 + offset, value, size)))
    with pytest.raises(FormatError) as caught:
        KeyCache().get(path)
    assert f"section 4 (coefficients), entry 3: {message}" in str(caught.value)


def test_coefficients_are_checked_even_when_the_content_is_known(tmp_path, checks):
    """An index out of range would be followed out of bounds: what is remembered is not trusted with that."""
    parts = parts_of(BN254)
    bad = written(tmp_path, parts.replace(4, put(4 + 8, 2**31)), "bad.zkey")
    store = CheckedKeys()
    content = keys.content_hash(keys.ZKey.open(bad).source.data, CancelToken())
    store.remember(str(bad), FileIdentity.of(bad), content)
    assert store.is_checked(content)
    with pytest.raises(FormatError, match="signal is 2,147,483,648"):
        KeyCache(store).get(bad)


def test_unordered_coefficients_get_an_order(tmp_path):
    parts = parts_of(BN254)

    def reverse(payload):
        rows = [payload[start : start + 44] for start in range(4, len(payload), 44)]
        return payload[:4] + b"".join(reversed(rows))

    key = KeyCache().get(written(tmp_path, parts.replace(4, reverse)))
    constraints = [struct.unpack_from("<I", key.zkey.coefficients[index].tobytes(), 4)[0] for index in key.order]
    assert sorted(key.order.tolist()) == list(range(key.zkey.n_coefficients))
    assert constraints == sorted(constraints)


def test_checked_once_then_remembered(tmp_path, checks):
    path = written(tmp_path, parts_of(BN254))
    old(path)
    KeyCache().get(path)
    assert checks == {"points": 1, "hash": 1}
    # A new process: neither checked nor even read again.
    KeyCache().get(path)
    assert checks == {"points": 1, "hash": 1}
    # The same content elsewhere: read, not checked.
    copy = tmp_path / "copy.zkey"
    shutil.copy(path, copy)
    KeyCache().get(copy)
    assert checks == {"points": 1, "hash": 2}


@pytest.mark.parametrize("item", CASES, ids=str)
def test_densities_are_counted(item):
    """Against the bytes, and the same whether they were counted or remembered."""
    path = item.path("circuit.zkey")
    key = KeyCache().get(path)
    zkey = key.zkey
    sections = {Query.H: zkey.h, Query.A: zkey.a, Query.B1: zkey.b1, Query.B2: zkey.b2, Query.L: zkey.l}
    for query, count in zip(Query, key.sizes.present, strict=True):
        assert count == sum(any(point.tobytes()) for point in sections[query])
    assert KeyCache().get(path).sizes == key.sizes
    assert (key.sizes.present, key.sizes.general) == (count_present(key.zkey), count_general(key.zkey))


@pytest.mark.parametrize(
    "counts", [5, None, [], [1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5, -1], [1, 2, 3, 4, "5", 6]]
)
def test_strange_counts_are_not_believed(tmp_path, checks, counts):
    path, store = written(tmp_path, parts_of(BN254)), CheckedKeys()
    expected = KeyCache(store).get(path).sizes
    state = json.loads(store.path.read_text())
    state["checked"] = dict.fromkeys(state["checked"], counts)
    store.path.write_text(json.dumps(state))
    assert KeyCache(store).get(path).sizes == expected
    assert checks["points"] == 1


def test_a_file_that_was_just_written_is_not_known_by_its_times(tmp_path, checks, monkeypatch):
    monkeypatch.setattr(key_checks, "_SETTLED_NS", 10**12)
    path = written(tmp_path, parts_of(BN254))
    KeyCache().get(path)
    KeyCache().get(path)
    assert checks == {"points": 1, "hash": 2}


def test_one_cache_keeps_its_keys(tmp_path, checks):
    path = written(tmp_path, parts_of(BN254))
    cache = KeyCache()
    key = cache.get(path)
    assert cache.get(path) is key
    cache.evict(path)
    assert cache.loaded() == []
    assert cache.get(path) is not key


def test_keeps_a_limited_number(tmp_path):
    cache = KeyCache(kept=2)
    paths = [written(tmp_path, parts_of(BN254), f"{number}.zkey") for number in range(3)]
    for path in (paths[0], paths[1], paths[0], paths[2]):
        cache.get(path)
    assert [key.path for key in cache.loaded()] == [str(paths[0]), str(paths[2])]


@pytest.mark.parametrize("how", ["overwrite", "rename", "same times"])
def test_a_replaced_key_is_loaded_anew(tmp_path, how):
    first, second = parts_of(BN254, "chain_255"), parts_of(BN254, "chain_255")
    second = second.replace(10, lambda payload: payload[:-1] + b"!")
    path, cache = written(tmp_path, first), KeyCache()
    old(path)
    before = cache.get(path)
    assert len(first.build()) == len(second.build())
    if how == "rename":
        other = written(tmp_path, second, "other.zkey")
        old(other)
        other.replace(path)
    else:
        path.write_bytes(second.build())
        if how == "same times":
            old(path)
    after = cache.get(path)
    assert after is not before
    assert after.zkey.content_hash() != before.zkey.content_hash()
    assert cache.loaded() == [after]


def test_a_key_that_went_away(tmp_path):
    path, cache = written(tmp_path, parts_of(BN254)), KeyCache()
    cache.get(path)
    path.unlink()
    with pytest.raises(FormatError, match="no such file"):
        cache.get(path)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"version": 1}', '{"version": 99, "checked": {}, "files": {}}', "\0" * 50, "[" * 9999],
)
def test_a_damaged_memory_costs_a_check(tmp_path, checks, text):
    path, store = written(tmp_path, parts_of(BN254)), CheckedKeys()
    store.path.parent.mkdir(parents=True)
    store.path.write_text(text)
    KeyCache(store).get(path)
    assert checks["points"] == 1
    assert json.loads(store.path.read_text())["checked"]


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_file_is_no_memory(tmp_path, checks, kind):
    path, store = written(tmp_path, parts_of(BN254)), CheckedKeys()
    store.path.parent.mkdir(parents=True)
    match kind:
        case "pipe":
            os.mkfifo(store.path)
        case "device":
            store.path.symlink_to("/dev/zero")
        case "folder":
            store.path.mkdir()
    reader = os.open(store.path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        loading = threading.Thread(target=KeyCache(store).get, args=(path,), daemon=True)
        loading.start()
        loading.join(20)
        assert not loading.is_alive()
        assert checks["points"] == 1
        assert not store.path.is_file()
        if kind == "pipe":
            assert os.read(reader, 1) == b""
    finally:
        os.close(reader)


@pytest.mark.parametrize("entry", [5, [], ["x"], {"a": 1}, [1, 2, 3, 4, 5, None], None])
def test_strange_entries_are_not_believed(tmp_path, checks, entry):
    path, store = written(tmp_path, parts_of(BN254)), CheckedKeys()
    KeyCache(store).get(path)
    state = json.loads(store.path.read_text())
    state["files"][str(path)] = entry
    store.path.write_text(json.dumps(state))
    KeyCache(store).get(path)
    assert checks == {"points": 1, "hash": 2}


def test_a_memory_that_cannot_be_written(tmp_path, checks):
    (tmp_path / "file").write_text("in the way")
    path, store = written(tmp_path, parts_of(BN254)), CheckedKeys(tmp_path / "file" / "folder")
    KeyCache(store).get(path)
    KeyCache(store).get(path)
    assert checks == {"points": 2, "hash": 2}


def test_the_memory_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(key_checks, "_CHECKS_KEPT", 3)
    store = CheckedKeys(tmp_path)
    for number in range(5):
        store.remember(f"/{number}", None, f"hash {number}")
    assert [store.is_checked(f"hash {number}") for number in range(5)] == [False, False, True, True, True]


def test_cancelled_while_loading(tmp_path):
    path, cancel = written(tmp_path, parts_of(BN254)), CancelToken()
    cancel.set()
    cache = KeyCache()
    with pytest.raises(CancelledError):
        cache.get(path, cancel)
    assert cache.loaded() == []
    assert cache.get(path).path == str(path)


def test_many_threads_load_once(checks):
    path = case("bn128", "merkle10").path("circuit.zkey")
    cache, found = KeyCache(), []
    threads = [threading.Thread(target=lambda: found.append(cache.get(path))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert len({id(key) for key in found}) == 1
    assert checks["points"] == 1


def test_progress_of_a_check():
    seen = []
    KeyCache().get(case("bls12381", "merkle10").path("circuit.zkey"), progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert BLS12_381.g1_bytes == 96


def test_densities_are_counted_once(tmp_path, monkeypatch):
    """And again where the memory does not tell them all, or tells nonsense."""
    path = tmp_path / "circuit.zkey"
    path.write_bytes((BROKEN / "good.zkey").read_bytes())
    counts = []

    def count(*args):
        counts.append(count_densities(*args))
        return counts[-1]

    monkeypatch.setattr("cuzk_engine.keys.count_densities", count)
    checks = CheckedKeys(tmp_path)
    content = KeyCache(checks).get(path).zkey.content_hash()
    assert counts == [checks.densities(content)]
    sizes = KeyCache(checks).get(path).sizes
    assert Densities(sizes.present, sizes.general) == counts[0]
    assert len(counts) == 1
    memory = json.loads(checks.path.read_text())
    for nonsense in ({}, {content: list(sizes.present)}, {content: "many"}, {content: [1, 2, 3, 4, 5, "x"]}):
        checks.path.write_text(json.dumps(memory | {"checked": nonsense}))
        assert checks.densities(content) is None
        before = len(counts)
        assert KeyCache(checks).get(path).sizes == sizes
        assert len(counts) == before + 1
    checks.path.write_text(json.dumps(memory | {"checked": []}))
    assert not checks.is_checked(content)
