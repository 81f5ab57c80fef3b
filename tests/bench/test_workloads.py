"""The cache of profiles: made once, bounded, and never taken from under somebody."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cuzk_engine import paths
from cuzk_engine.bench import workloads
from cuzk_engine.bench.workloads import folder_name, workload
from cuzk_engine.curves import BLS12_381, BN254
from cuzk_engine.errors import CuzkError, UsageError
from cuzk_engine.formats.wtns import Witness, check_witness
from cuzk_engine.formats.zkey import ZKey


def silent(phase: str, done: float) -> None:
    pass


def test_what_was_made_is_used_again() -> None:
    drawn: list[str] = []
    with workload("chain:2^4", BN254, lambda phase, done: drawn.append(phase)) as (key, witness):
        check_witness(ZKey.open(key), Witness.open(witness))
        first = key.stat()
    assert drawn
    drawn.clear()
    with workload("chain:2^4", BN254, lambda phase, done: drawn.append(phase)) as (again, _):
        assert again == key
        assert os.path.samestat(again.stat(), first)
    assert drawn == []


def test_another_curve_is_another_folder() -> None:
    with workload("chain:2^3", BLS12_381, silent) as (key, _):
        assert ZKey.open(key).curve is BLS12_381
    assert folder_name("chain:2^3", BN254) != folder_name("chain:2^3", BLS12_381)
    assert "/" not in folder_name("chain:2^3", BN254)


def test_the_longest_unused_goes_first_and_none_that_is_held() -> None:
    root = paths.cache_dir() / "bench"
    with workload("chain:2^3", BN254, silent) as (held, _):
        for size in (4, 5, 6):
            with workload(f"chain:2^{size}", BN254, silent) as (key, _):
                os.utime(key.parent / ".complete", (size, size))
        assert len(list(root.iterdir())) == 4
        os.utime(held.parent / ".complete", (1, 1))
        with workload("chain:2^6", BN254, silent, limit=0) as (key, _):
            assert {path.name for path in root.iterdir()} == {held.parent.name, key.parent.name}
            assert held.is_file()
            assert key.is_file()


def test_a_folder_that_was_left_in_part_is_made_again() -> None:
    with workload("chain:2^3", BN254, silent) as (key, _):
        pass
    (key.parent / ".complete").unlink()
    key.write_bytes(b"half")
    with workload("chain:2^3", BN254, silent) as (key, witness):
        check_witness(ZKey.open(key), Witness.open(witness))


def test_a_folder_removed_while_waiting_for_it_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process removes the folder between opening its lock file and having the lock."""
    with workload("chain:2^3", BN254, silent) as (key, _):
        folder = key.parent
    real, removed = workloads.fcntl.flock, []

    def flock(descriptor: int, how: int) -> None:
        if not removed:
            removed.append(True)
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
        real(descriptor, how)

    monkeypatch.setattr(workloads.fcntl, "flock", flock)
    with workload("chain:2^3", BN254, silent) as (key, witness):
        check_witness(ZKey.open(key), Witness.open(witness))


def test_faults_are_one_line() -> None:
    with pytest.raises(UsageError, match="profile"), workload("chain:16", BN254, silent):
        pass
    blocked = paths.cache_dir()
    blocked.parent.mkdir(parents=True, exist_ok=True)
    Path(blocked).write_text("in the way")
    with pytest.raises(CuzkError, match="cannot be made"), workload("chain:2^3", BN254, silent):
        pass
