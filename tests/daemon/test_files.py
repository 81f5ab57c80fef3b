"""Which files may be opened, and the spool."""

import os
import sys
from pathlib import Path

import pytest

from cuzk_engine.curves import BN254
from cuzk_engine.daemon.files import AllowedPaths, Spool, check_witness_file, content_hash, default_name, read_key
from cuzk_engine.daemon.refusal import Reason, RefusedError
from cuzk_engine.errors import CuzkError, FormatError
from cuzk_engine.formats.zkey import ZKey
from tests.formats.builders import wtns
from tests.support.bellperson import ToyKey, make_toy
from tests.support.cases import case


def test_allowed_folders(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "inner"
    inside.mkdir()
    outside.mkdir()
    allowed = AllowedPaths([str(inside)], "/data")
    assert allowed.check(str(inside / "a")) == str(inside / "a")
    (inside / "link").symlink_to(outside / "x")
    (outside / "back").symlink_to(inside / "y")
    assert allowed.check(str(outside / "back")) == str(inside / "y")
    for path in (outside / "a", inside / "link", inside / ".." / "inner" / "a", Path("/etc/passwd")):
        with pytest.raises(RefusedError, match=r"daemon\.allowed_paths") as refusal:
            allowed.check(str(path))
        assert refusal.value.reason is Reason.PERMISSION_DENIED
    for path in ("relative", "", f"{inside}/a\0b"):
        with pytest.raises(RefusedError, match="no absolute path"):
            allowed.check(path)


def test_the_default_is_the_home_folder_and_the_parameter_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    allowed = AllowedPaths((), "/data/zk/params")
    assert allowed.check(str(tmp_path / "key")) == str(tmp_path / "key")
    assert allowed.check("/data/zk/params/x") == "/data/zk/params/x"
    with pytest.raises(RefusedError):
        allowed.check("/data/zk/other")
    assert AllowedPaths(["~/keys"], "").check(str(tmp_path / "keys" / "a")) == str(tmp_path / "keys" / "a")
    assert AllowedPaths(["/"], "").check("/anything") == "/anything"


def test_the_spool_is_private_and_cleans_up(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.clean(keep=set())
    kept, descriptor = spool.create("a")
    os.close(descriptor)
    other, descriptor = spool.create("b")
    os.close(descriptor)
    with pytest.raises(FileExistsError):
        spool.create("a")
    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o700
    assert Path(kept).stat().st_mode & 0o777 == 0o600
    spool.clean(keep={kept})
    assert [str(path) for path in (tmp_path / "spool").iterdir()] == [kept]
    spool.remove(other)
    mine = tmp_path / "mine"
    mine.touch()
    spool.remove(str(mine))
    assert mine.exists()
    stuck = tmp_path / "spool" / "stuck"
    stuck.mkdir()
    spool.remove(str(stuck))  # what cannot be removed is no reason to stop
    spool.remove(kept)
    assert list((tmp_path / "spool").iterdir()) == [stuck]


def test_names_of_witnesses_are_not_interned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's table of interned strings grows with each, though they are gone with their job."""
    spool, interned = Spool(tmp_path), list[str]()
    monkeypatch.setattr(sys, "intern", lambda text: interned.append(text) or text)
    for number in range(10):
        path, descriptor = spool.create(f"job-{number}")
        os.close(descriptor)
        spool.remove(path)
    assert not list(tmp_path.iterdir())
    assert not [text for text in interned if "job-" in text]


def test_the_hash_of_a_key_is_that_of_its_reader(tmp_path: Path) -> None:
    path = case("bn128", "mul_pub").path("circuit.zkey")
    assert content_hash(str(path)) == ZKey.open(path).content_hash()
    with pytest.raises(FormatError, match="no such file"):
        content_hash(str(tmp_path / "missing"))


def test_names() -> None:
    assert default_name("/a/mul/circuit.zkey") == "mul"
    assert default_name("/a/mul/final.zkey") == "final"
    assert issubclass(RefusedError, CuzkError)


def test_a_bellperson_key_is_called_one(tmp_path: Path) -> None:
    (path := tmp_path / "key.params").write_bytes(ToyKey.of(make_toy(1, 3, 9)).params())
    with pytest.raises(FormatError, match=r"this is a bellperson key \(params\), which the engine does not take"):
        read_key(str(path))


@pytest.mark.parametrize(("mine", "other"), [("bn128", "bls12381"), ("bls12381", "bn128")])
def test_a_witness_of_the_other_curve_is_refused_in_the_words_of_a_proof(mine: str, other: str) -> None:
    path, facts = case(other, "mul_pub").path("witness.wtns"), read_key(str(case(mine, "mul_pub").path("circuit.zkey")))
    titles = {"bn128": "BN254", "bls12381": "BLS12-381"}
    with pytest.raises(FormatError, match=f"witness is for {titles[other]}, the key /k.zkey for {titles[mine]}: they"):
        check_witness_file(str(path), "/k.zkey", facts.curve, facts.n_vars)


def test_a_witness_of_one_value_is_refused_in_the_singular(tmp_path: Path) -> None:
    (path := tmp_path / "one.wtns").write_bytes(wtns(BN254.r, [1]))
    with pytest.raises(FormatError, match=r"witness has 1 value, the circuit of /k\.zkey has 8 signals"):
        check_witness_file(str(path), "/k.zkey", "bn128", 8)
