"""What is made of NVML's answers, and of cards and libraries that do not answer."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from cuzk_engine import nvml
from cuzk_engine.events import OtherProcess
from cuzk_engine.nvml import Card, CardLostError, CardView, Memory, Nvml, NvmlError, Reading
from tests.support.fake_nvml import LOST, MIB, MISMATCH, UNKNOWN, FakeCard, FakeNvml, NVMLError

FIRST = FakeCard("GPU-aaaa", "00000000:1B:00.0", "NVIDIA H200")
SECOND = FakeCard("GPU-bbbb", "00000000:9A:00.0", b"NVIDIA L40S")


def two_cards() -> FakeNvml:
    return FakeNvml(FakeCard(FIRST.uuid, FIRST.bus_id, FIRST.name), FakeCard(SECOND.uuid, SECOND.bus_id, SECOND.name))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (12, "NVML's library libnvidia-ml.so.1 was not found"),
        (9, "NVML says that the driver is not loaded"),
        (MISMATCH, "of different versions (after an update: restart the machine)"),
        (UNKNOWN, "in a container: it may have lost access"),
        (77, "NVML fails: code 77"),
    ],
)
def test_why_it_does_not_start(code: int, words: str) -> None:
    with pytest.raises(NvmlError) as refusal:
        Nvml.open(FakeNvml(start=code))
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_package_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NvmlError, match="nvidia-ml-py is not installed"):
        Nvml.open()


def test_cards_and_their_instances() -> None:
    library = two_cards()
    library.cards[1].mig = True
    opened = Nvml.open(library)
    memory = Memory(1000 * MIB, 100 * MIB, 890 * MIB, 10 * MIB)
    assert opened.cards() == (
        Card(0, "NVIDIA H200", "GPU-aaaa", "00000000:1b:00.0", memory, False),
        Card(1, "NVIDIA L40S", "GPU-bbbb", "00000000:9a:00.0", memory, True, ("MIG-bbbb-0", "MIG-bbbb-1")),
    )
    assert (opened.driver_version(), opened.cuda_version()) == ("580.95.05", 13000)
    library.cards[0].lost_after = 0
    assert [card.uuid for card in opened.cards()] == ["GPU-bbbb"]
    opened.close()
    assert library.closed == library.opened == 1


def test_a_card_is_found_whatever_its_number_is() -> None:
    library = two_cards()
    opened = Nvml.open(library)
    first, second = library.cards
    library.cards.reverse()
    assert opened.find("GPU-aaaa", "") is first
    assert opened.find("GPU-unknown", "0000:9A:00.0") is second
    assert opened.find("", "0000:33:00.0") is None
    library.broken = UNKNOWN  # not the same as a card that is not there
    with pytest.raises(NvmlError, match="unknown reason"):
        opened.find("GPU-aaaa", "")
    library.broken = 0
    instance = FakeCard("MIG-cccc", "")
    library.cards.append(instance)
    assert opened.find("GPU-cccc", "") is instance  # CUDA writes every UUID like that


def test_bus_ids_are_compared_in_one_form() -> None:
    assert nvml.normal_bus_id("0000:1B:00.0") == nvml.normal_bus_id("00000000:1b:00.0 ") == "00000000:1b:00.0"
    assert nvml.normal_bus_id("none") == "none"
    assert nvml.bus_id("1B:00") == nvml.bus_id("1b:00.0") == "00000000:1b:00.0"
    assert [nvml.bus_id(text) for text in ("none", "", "1b", "1b:00.8", "0:1b:00.0")] == [None] * 5


def test_readings() -> None:
    library = two_cards()
    card = library.cards[0]
    card.throttle = 0x1 | 0x4 | 0x40
    opened = Nvml.open(library)
    assert opened.read(card) == Reading(0.4, 350.5, 1980.0, 61.0, "power-cap,hardware-thermal")
    card.throttle = 0x1  # idle is no throttling
    assert opened.read(card).throttle == ""


def test_what_is_not_supported_is_missing_and_not_zero() -> None:
    library = two_cards()
    card = library.cards[0]
    opened = Nvml.open(library)
    card.missing = {"nvmlDeviceGetMemoryInfo_v2"}
    assert opened.memory(card) == Memory(1000 * MIB, 110 * MIB, 890 * MIB, None)
    card.missing = {name for name in dir(FakeNvml) if name.startswith("nvmlDeviceGet")} | card.missing
    assert opened.memory(card) is None
    assert opened.read(card) == Reading(None, None, None, None, None)
    assert opened.counters(card) is None
    assert opened.processes(card) is None
    assert opened.link_bytes(card) > 100e9  # the fastest there is
    card.missing, card.total = set(), 0
    assert opened.memory(card) is None  # a card that shares the system's memory


def test_counters_are_read_together() -> None:
    library = two_cards()
    library.cards[0].counters = lambda: (3 + (1 << 32), 5)
    found = Nvml.open(library).counters(library.cards[0])
    assert found is not None
    assert (found.rx, found.tx) == (3, 5)
    assert found.began_ns <= found.ended_ns


def test_a_lost_card_is_told_from_a_broken_library() -> None:
    library = two_cards()
    opened = Nvml.open(library)
    library.cards[0].lost_after = 1
    assert opened.memory(library.cards[0]) is not None
    with pytest.raises(CardLostError, match=rf"the GPU is lost \({LOST}\)"):
        opened.memory(library.cards[0])
    assert opened.memory(library.cards[1]) is not None
    library.broken = UNKNOWN
    assert opened.memory(library.cards[1]) is None  # may be of this call alone
    library.broken = 1
    with pytest.raises(NvmlError, match="shut down"):
        opened.memory(library.cards[1])


def test_process_ids_that_do_not_exist_here() -> None:
    me = os.getpid()
    found = nvml.others({999999: 5 * MIB, 1: None, me: MIB, me + 1_000_000: 7 * MIB}, own_pids=[me])
    assert [(p.pid, p.bytes) for p in found] == [(me + 1_000_000, 7 * MIB), (999999, 5 * MIB), (1, None)]
    assert found[1] == OtherProcess(999999, "", 5 * MIB)


def test_memory_of_a_process_may_not_be_available() -> None:
    library = two_cards()
    library.cards[0].processes = {7: (1 << 64) - 1, 8: None, 9: MIB}
    assert Nvml.open(library).processes(library.cards[0]) == {7: None, 8: None, 9: MIB}


def process(proc: Path, pid: int, name: str, *files: str) -> None:
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    for number, target in enumerate(files):
        (folder / "fd" / str(number)).symlink_to(target)


def test_in_a_container_a_number_may_be_another_process(tmp_path: Path) -> None:
    process(tmp_path, 7, "shell", "/dev/null")
    process(tmp_path, 8, "prover", "/dev/null", "/dev/nvidia0")
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").write_text("")  # not the machine's own namespace
    assert [nvml.process_name(pid, tmp_path) for pid in (7, 8, 9)] == ["", "prover", ""]


# ---- one card for the device's own process ----


def test_a_view_of_one_card() -> None:
    library = two_cards()
    library.cards[1].processes = {os.getpid(): 50 * MIB, 999999: 20 * MIB}
    view = CardView("GPU-bbbb", "", library=library)
    memory, others = view.memory(), view.others([os.getpid()])
    assert memory is not None
    assert memory.free == 890 * MIB
    assert others == (OtherProcess(999999, "", 20 * MIB),)
    library.broken = 1
    assert view.memory() is None
    library.broken = 0
    assert view.memory() is None  # left alone for a while
    assert library.starts == 1
    view.close()
    assert library.closed == library.opened


def test_a_call_that_hangs_keeps_nobody() -> None:
    library = two_cards()
    view = CardView("GPU-aaaa", "", seconds=0.05, library=library)
    assert view.memory() is not None
    library.release.clear()
    before = threading.active_count()
    assert view.memory() is None
    view._rest_until = 0.0
    assert view.memory() is None  # at once: the first question still hangs
    assert threading.active_count() == before
    with pytest.raises(NvmlError, match=r"NVML does not answer \(0.05 s\)"):
        nvml.within(0.05, Nvml.open(library).cards)
    library.release.set()
    view.close()


def test_what_a_question_raises_comes_back() -> None:
    with pytest.raises(NVMLError):
        nvml.within(5, lambda: FakeNvml(start=9).nvmlInit())
