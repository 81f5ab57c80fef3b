"""What is said of a GPU that cannot be used, and what is asked of the driver."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import pytest

from cuzk_engine.daemon.device_names import DeviceNames
from cuzk_engine.devices.cuda import probe
from cuzk_engine.devices.cuda.probe import Card, Driver
from cuzk_engine.errors import SettingError

GOOD = Driver((13, 0), (Card((9, 0)), Card((7, 0)), Card((12, 0))))


@pytest.mark.parametrize(
    ("number", "driver", "cupy", "expected"),
    [
        (0, None, 13, "no NVIDIA driver was found (libcuda.so.1); install the driver"),
        (0, Driver((13, 0)), 13, "the NVIDIA driver sees no card"),
        (0, Driver((13, 0), (), 999), 13, "the NVIDIA driver does not start (code 999)"),
        (3, GOOD, 13, "there is no such card; there is cuda:0, cuda:1, cuda:2"),
        (0, Driver((12, 4), (Card((9, 0)),)), 13, "too old: it serves CUDA 12.4, the installed CuPy needs 13"),
        (0, Driver((12, 4), (), 35), 13, "too old: it serves CUDA 12.4"),
        (0, Driver((12, 4), (), 35), 13, f"or {sys.executable} -m pip install 'cuzk[cuda12]' for CUDA 12, or"),
        (1, GOOD, 13, "the card has compute capability 7.0, 7.5 or higher is needed"),
        (0, GOOD, 0, f"CuPy is not installed; {sys.executable} -m pip install 'cuzk[cuda13]', or"),
        (
            0,
            Driver((12, 8), (Card((9, 0)),)),
            0,
            f"CuPy is not installed; {sys.executable} -m pip install 'cuzk[cuda12]', or",
        ),
    ],
)
def test_refusals_are_one_sentence(number: int, driver: Driver | None, cupy: int, expected: str) -> None:
    found = probe.refusal(number, driver, cupy)
    assert found is not None
    assert expected in found
    assert "\n" not in found


@pytest.mark.parametrize("cupy", [13, 12, None])
def test_good_cards(cupy: int | None) -> None:
    assert probe.refusal(0, GOOD, cupy) is None
    assert probe.usable(GOOD, cupy) == [0, 2]
    assert probe.usable(None, cupy) == probe.usable(GOOD, 0) == []


class OldDriver:
    """libcuda's calls as the probe makes them, of a driver that cannot name its cards."""

    def __init__(self, version: int, cards: list[tuple[int, int]], fault: int = 0) -> None:
        self.version, self.cards, self.fault = version, cards, fault

    def cuInit(self, flags: int) -> int:  # noqa: N802
        assert flags == 0
        return self.fault

    def cuDriverGetVersion(self, out: object) -> int:  # noqa: N802
        return self._give(out, self.version)

    def cuDeviceGetCount(self, out: object) -> int:  # noqa: N802
        return self._give(out, len(self.cards))

    def cuDeviceGet(self, out: object, index: int) -> int:  # noqa: N802
        return self._give(out, 100 + index)

    def cuDeviceGetAttribute(self, out: object, attribute: int, card: int) -> int:  # noqa: N802
        return self._give(out, self.cards[card - 100][{75: 0, 76: 1}[attribute]])

    def _check(self, card: int) -> int:
        return 0 if 0 <= card - 100 < len(self.cards) else 101

    @staticmethod
    def _give(out: object, value: int) -> int:
        ctypes.cast(out, ctypes.POINTER(ctypes.c_int))[0] = value  # type: ignore[arg-type]
        return 0


class FakeDriver(OldDriver):
    def cuDeviceGetName(self, out: Any, length: int, card: int) -> int:  # noqa: N802
        assert length == len(out)
        out.value = b"NVIDIA H200"
        return self._check(card)

    def cuDeviceGetPCIBusId(self, out: Any, length: int, card: int) -> int:  # noqa: N802
        assert length == len(out)
        out.value = f"0000:{card - 99:02X}:00.0".encode()
        return self._check(card)

    def cuDeviceTotalMem_v2(self, out: Any, card: int) -> int:  # noqa: N802
        ctypes.cast(out, ctypes.POINTER(ctypes.c_size_t))[0] = 141 << 30  # type: ignore[arg-type]
        return self._check(card)

    def cuDeviceGetUuid(self, out: Any, card: int) -> int:  # noqa: N802
        out[:] = bytes(range(card - 100, card - 84))
        return self._check(card)


def test_reading_the_driver() -> None:
    assert probe.read_driver(lambda _: OldDriver(13000, [(9, 0), (7, 0), (12, 0)])) == GOOD
    assert probe.read_driver(lambda _: OldDriver(12080, [], 100)) == Driver((12, 8))
    assert probe.read_driver(lambda _: OldDriver(12040, [], 803)) == Driver((12, 4), (), 803)
    driver = probe.read_driver(lambda _: FakeDriver(13000, [(9, 0), (12, 0)]))
    assert driver is not None
    assert driver.cards == (
        Card((9, 0), "NVIDIA H200", "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", "0000:01:00.0", 141 << 30),
        Card((12, 0), "NVIDIA H200", "GPU-01020304-0506-0708-090a-0b0c0d0e0f10", "0000:02:00.0", 141 << 30),
    )
    assert [card.architecture for card in driver.cards] == ["sm_90", "sm_120"]

    def missing(_: str) -> None:
        raise OSError

    assert probe.read_driver(missing) is None


def test_names_of_cards() -> None:
    named = probe.read_driver(lambda _: FakeDriver(13000, [(9, 0), (9, 0)]))
    assert named is not None
    assert [(card.uuid, card.bus_id) for card in named.cards] == [
        ("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", "0000:01:00.0"),
        ("GPU-01020304-0506-0708-090a-0b0c0d0e0f10", "0000:02:00.0"),
    ]
    silent = probe.read_driver(lambda _: OldDriver(13000, [(9, 0)]))
    assert silent is not None
    assert [(card.uuid, card.bus_id) for card in silent.cards] == [("", "")]
    empty = probe.read_driver(lambda _: FakeDriver(13000, [], 100))
    assert empty is not None
    assert empty.cards == ()


@pytest.mark.parametrize(
    ("wanted", "driver", "expected"),
    [
        ((), GOOD, ["cuda:0", "cuda:2"]),
        ((), None, ["cpu"]),
        (("auto",), None, ["cpu"]),
        (("2", "cuda:0", "cpu", "cuda:2"), GOOD, ["cuda:2", "cuda:0", "cpu"]),
    ],
)
def test_devices_of_the_daemon(
    monkeypatch: pytest.MonkeyPatch, wanted: tuple[str, ...], driver: Driver | None, expected: list[str]
) -> None:
    readings = []
    monkeypatch.setattr(probe, "read_driver", lambda: readings.append(driver) or driver)
    monkeypatch.setattr(probe, "cupy_cuda", lambda: 13)
    assert DeviceNames.of_machine().choose(wanted) == expected
    assert readings == [driver]  # once: the driver's start takes a while


@pytest.mark.parametrize("name", ["1", "gpu", "GPU-1234", "7"])
def test_devices_that_the_daemon_refuses(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(probe, "read_driver", lambda: GOOD)
    monkeypatch.setattr(probe, "cupy_cuda", lambda: 13)
    with pytest.raises(SettingError, match=f"gpus.devices names '{name}': "):
        DeviceNames.of_machine().choose((name,))
