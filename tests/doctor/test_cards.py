"""What the doctor says of drivers, NVML and cards of every kind."""

from __future__ import annotations

import fcntl
import os
import sys
from importlib import metadata
from pathlib import Path

import pytest

from cuzk_engine import nvml
from cuzk_engine.curves import BLS12_381, BN254
from cuzk_engine.devices.cuda import nvrtc, probe, programs
from cuzk_engine.devices.cuda.probe import Driver
from cuzk_engine.doctor import cards as each_card
from cuzk_engine.doctor import gpu
from cuzk_engine.doctor.check import Check, Verdict, ok
from cuzk_engine.doctor.gpu import Cards
from tests.support.fake_nvml import MIB, FakeCard, FakeNvml

NO_NVML = "NVML's library libnvidia-ml.so.1 was not found"
H200 = probe.Card((9, 0), "NVIDIA H200", "GPU-aaaa", "0000:1B:00.0", 140 << 30)
OLD = probe.Card((7, 0), "Tesla V100", "GPU-bbbb", "0000:9A:00.0", 16 << 30)
TWO = Driver((13, 0), (H200, OLD))
ONE_OLD_CUDA = Driver((12, 4), (H200,))
NONE = Cards(nvml_fault=NO_NVML)
CARD = Cards("550.54", ONE_OLD_CUDA)


def listed() -> FakeNvml:
    """NVML counts the other way round, and knows a card more."""
    return FakeNvml(
        FakeCard("GPU-bbbb", "00000000:9A:00.0", "Tesla V100"),
        FakeCard("GPU-cccc", "00000000:AA:00.0", "NVIDIA L4"),
        FakeCard("GPU-aaaa", "00000000:1B:00.0", "NVIDIA H200"),
    )


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_no_card_is_no_fault(tmp_path: Path) -> None:
    found = gpu.look(tmp_path, lambda: None, FakeNvml(start=12))
    assert found == NONE
    assert gpu.driver(found) == ok("nvidia driver", "none (libcuda.so.1 was not found): proofs run on the CPU")
    assert gpu.monitoring(found) == ok("nvml", f"none ({NO_NVML}); matters with a GPU only")
    assert each_card.states(found, 0, tmp_path) == []


def test_nvml_may_be_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = gpu.look(tmp_path, lambda: TWO)
    assert found.nvml_fault == "nvidia-ml-py is not installed"
    check = gpu.monitoring(found)
    assert check.verdict is Verdict.WARNING
    assert check.found.startswith("nvidia-ml-py is not installed: proofs run, but")


def test_a_module_without_its_library(tmp_path: Path) -> None:
    write(
        tmp_path, "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar\n"
    )
    found = gpu.driver(gpu.look(tmp_path, lambda: None, FakeNvml(start=18)))
    assert found.verdict is Verdict.WARNING
    assert "the kernel's module 550.54.15 is loaded, but libcuda.so.1 was not found" in found.found


def test_a_driver_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = listed()
    monkeypatch.setattr(gpu, "_DRIVER_SECONDS", 0.05)
    library.release.clear()

    def hang() -> Driver | None:
        library.release.wait()
        return None

    found = gpu.look(tmp_path, hang, FakeNvml(start=9))
    assert gpu.driver(found).verdict is Verdict.PROBLEM
    assert found.fault == "the driver does not answer (0.05 s)"
    monkeypatch.setattr(nvml, "ANSWER_SECONDS", 0.05)
    assert gpu.look(tmp_path, lambda: TWO, library).nvml_fault == "NVML does not answer (0.05 s)"
    library.release.set()


@pytest.mark.parametrize(
    ("driver", "words", "advice"),
    [
        (Driver((12, 4), (), 803), "it does not start (code 803)", "restart the machine"),
        (Driver((11, 4), (), 35), "it does not start (code 35)", "update the driver"),
        (Driver((13, 0), (), 802), "it does not start (code 802)", "nvidia-fabricmanager"),
        (Driver((13, 0), (), 999), "it does not start (code 999)", "see nvidia-smi"),
    ],
)
def test_a_driver_that_does_not_start(driver: Driver, words: str, advice: str) -> None:
    found = gpu.driver(Cards("550.54", driver))
    assert found.verdict is Verdict.WARNING
    assert words in found.found
    assert advice in found.advice


def test_cards_and_both_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = listed()
    found = gpu.look(tmp_path, lambda: TWO, library)
    assert library.opened == library.closed == 1
    assert gpu.driver(found) == ok("nvidia driver", "580.95.05, CUDA 13.0; 2 cards")
    assert gpu.monitoring(found) == ok("nvml", "answers, 3 cards")
    monkeypatch.setattr(nvrtc, "refusal", lambda architecture: None)
    monkeypatch.setattr(each_card, "missing", lambda programs, architecture, cache: list(programs)[:5])
    states = each_card.states(found, 13, tmp_path)
    first, second = map(each_card.check, states)
    assert first.name == "cuda:0"
    assert first == ok("cuda:0", first.found)
    assert first.found.startswith(
        "NVIDIA H200, compute capability 9.0, 140 GiB, GPU-aaaa, 0000:1B:00.0, number 2 in nvidia-smi; "
        "kernels for sm_90 compiled: "
    )
    assert first.found.endswith("the first proof compiles the rest, once")
    assert (second.name, second.verdict) == ("cuda:1", Verdict.WARNING)
    assert second.found.endswith("cannot be used: the card has compute capability 7.0, 7.5 or higher is needed")
    assert second.advice == 'prove on the CPU (--device cpu or auto; with the daemon gpus.devices = ["cpu"])'
    document = states[0].as_json()
    assert (document["number"], document["nvml_number"], document["architecture"]) == (0, 2, "sm_90")
    for kernels in document["kernels"].values():
        assert kernels["compiled"] == kernels["needed"] - 5 > 0
    assert states[1].as_json()["kernels"] == {}


def test_kernels_that_are_all_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "refusal", lambda architecture: None)
    monkeypatch.setattr(each_card, "missing", lambda programs, architecture, cache: [])
    (state,) = each_card.states(Cards(driver=Driver((13, 0), (H200,))), 13, tmp_path)
    found = each_card.check(state).found
    assert "the first proof" not in found
    for curve in (BN254, BLS12_381):
        count = len(programs.for_proof(curve))
        assert f"{count} of {count} for {curve.title}" in found


@pytest.mark.parametrize(
    ("driver", "cupy", "compiler", "words", "advice"),
    [
        (ONE_OLD_CUDA, 13, None, "the NVIDIA driver is too old: it serves CUDA 12.4", "update the driver"),
        (ONE_OLD_CUDA, 0, None, "CuPy is not installed", f"{sys.executable} -m pip install 'cuzk[cuda12]'"),
        (Driver((13, 0), (H200,)), 13, "NVRTC not found: install it", "NVRTC not found: install it", "--device cpu"),
    ],
)
def test_one_sentence_for_each_card_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: Driver, cupy: int, compiler: str, words: str, advice: str
) -> None:
    monkeypatch.setattr(nvrtc, "refusal", lambda architecture: compiler)
    (state,) = each_card.states(Cards(driver=driver), cupy, tmp_path)
    found = each_card.check(state)
    assert found.verdict is Verdict.WARNING
    assert f"cannot be used: {words}" in found.found
    assert advice in found.advice


def test_visible_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = gpu.look(tmp_path, lambda: TWO, listed())
    assert each_card.visible(found) is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert each_card.visible(found) == ok(
        "visible cards",
        'CUDA_VISIBLE_DEVICES="2,0": cuda:0 is number 2 in nvidia-smi, cuda:1 is number 0 in nvidia-smi; 1 more is '
        "hidden",
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    hidden = gpu.look(tmp_path, lambda: Driver((13, 0)), listed())
    check = gpu.driver(hidden)
    assert check.verdict is Verdict.WARNING
    assert 'CUDA_VISIBLE_DEVICES="-1" hides all cards' in check.found
    assert each_card.visible(hidden) == ok("visible cards", 'CUDA_VISIBLE_DEVICES="-1": no card is left')


def test_cards_in_instances(tmp_path: Path) -> None:
    library = listed()
    assert each_card.mig(gpu.look(tmp_path, lambda: TWO, library)) is None
    library.cards[2].mig = True
    found = each_card.mig(gpu.look(tmp_path, lambda: TWO, library))
    assert found is not None
    assert (found.verdict, found.found) == (Verdict.OK, "number 2 (NVIDIA H200) has MIG-aaaa-0, MIG-aaaa-1")
    empty = nvml.Card(0, "NVIDIA H200", "GPU-aaaa", "", None, True)
    none = each_card.mig(Cards(listed=(empty,)))
    assert none is not None
    assert none.verdict is Verdict.WARNING


def test_a_card_without_a_memory_of_its_own() -> None:
    library = listed()
    library.cards[0].missing = {"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"}
    card = nvml.Nvml.open(library).cards()[0]
    assert card.memory is None
    state = each_card.CardState(0, "GB10", "", "", "12.1", "sm_121", 0, 0, None, "")
    assert "GiB" not in each_card.check(state).found
    assert library.cards[0].used == 100 * MIB


# ---- CuPy, locks, cache ----


@pytest.mark.parametrize(
    ("cards", "packages", "verdict", "words"),
    [
        (
            NONE,
            {},
            Verdict.OK,
            f"not installed; with a GPU: {probe.install('cuda13')} (driver 580 or newer; 525: cuda12)",
        ),
        (CARD, {}, Verdict.WARNING, "not installed: the cards cannot be used, proofs run on the CPU"),
        (CARD, {"cupy-cuda12x": "14.0"}, Verdict.OK, "cupy-cuda12x 14.0"),
        (CARD, {"cupy-cuda13x": "14.0"}, Verdict.PROBLEM, "cupy-cuda13x 14.0, but the driver knows CUDA 12 only"),
        (NONE, {"cupy-cuda13x": "14.0"}, Verdict.OK, "cupy-cuda13x 14.0"),
        (
            *(CARD, {"cupy-cuda12x": "14.0", "cupy": "13.0"}, Verdict.PROBLEM),
            "cupy-cuda12x 14.0 and cupy 13.0 are both installed, and overwrite each other",
        ),
    ],
)
def test_cupy(
    monkeypatch: pytest.MonkeyPatch, cards: Cards, packages: dict[str, str], verdict: Verdict, words: str
) -> None:
    def version(name: str) -> str:
        if name not in packages:
            raise metadata.PackageNotFoundError(name)
        return packages[name]

    monkeypatch.setattr(gpu.metadata, "version", version)
    monkeypatch.setattr(gpu.util, "find_spec", lambda name: object() if packages else None)
    found = gpu.cupy(cards)
    assert (found.verdict, found.found) == (verdict, words)


def test_a_newer_driver_gets_the_newer_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu.util, "find_spec", lambda name: None)
    monkeypatch.setattr(gpu, "_version", lambda name: "")
    assert gpu.cupy(Cards("580.1", TWO)).advice == f"{sys.executable} -m pip install 'cuzk[cuda13]'"


def test_a_held_lock_and_who_holds_it(tmp_path: Path) -> None:
    lock, other = tmp_path / "bellman.gpu.lock", tmp_path / "bellman.priority.lock"
    lock.touch()
    paths = (lock, other)
    assert gpu.bellman_lock(CARD, paths) == ok("bellman locks", "not held")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        found = gpu.bellman_lock(CARD, paths)
        if "pid" not in found.found:
            pytest.skip("this kernel shows no locks in /proc/locks")
        assert found.verdict is Verdict.WARNING
        assert f"{lock} is held by pid {os.getpid()} (" in found.found
        assert gpu.bellman_lock(NONE, paths).verdict is Verdict.OK
    assert gpu.bellman_lock(CARD, paths) == ok("bellman locks", "not held")


def test_the_kernels_list_of_locks_is_read_as_it_is(tmp_path: Path) -> None:
    lock = tmp_path / "bellman.gpu.lock"
    lock.touch()
    inode = lock.stat().st_ino
    write(tmp_path, "77/comm", "lotus-worker\n")
    lines = [
        "1: POSIX  ADVISORY  WRITE 5 08:01:1 0 EOF",
        f"2: -> FLOCK  ADVISORY  WRITE 6 08:01:{inode} 0 EOF",
        "garbage",
        f"3: FLOCK  ADVISORY  WRITE 77 08:01:{inode} 0 EOF",
    ]
    write(tmp_path, "locks", "\n".join(lines[:3]))
    assert gpu.lock_holder(lock, tmp_path) == ""
    write(tmp_path, "locks", "\n".join(lines))
    assert gpu.lock_holder(lock, tmp_path) == "pid 77 (lotus-worker)"
    (tmp_path / "77/comm").unlink()
    assert gpu.lock_holder(lock, tmp_path) == "pid 77"


def test_the_kernel_cache(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    assert gpu.kernel_cache(folder) == ok("kernel cache", f"{folder}: empty")
    write(folder, "a/one.kernel", "x" * 1024)
    write(folder, "two.kernel", "x" * 1024)
    assert gpu.kernel_cache(folder) == Check("kernel cache", Verdict.OK, f"{folder}: 2 files, 2 KiB")
