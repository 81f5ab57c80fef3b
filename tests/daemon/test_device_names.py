"""Names of devices in the configuration."""

from __future__ import annotations

import pytest

from cuzk_engine.daemon.device_names import DeviceNames
from cuzk_engine.devices.cuda.probe import Card, Driver
from cuzk_engine.devices.select import Machine
from cuzk_engine.errors import SettingError

FIRST = Card((9, 0), uuid="GPU-aaaa0000-0000-0000-0000-000000000001", bus_id="0000:3b:00.0")
SECOND = Card((9, 0), uuid="GPU-aaaa1111-0000-0000-0000-000000000002", bus_id="0001:3b:00.0")
NAMES = DeviceNames(Machine(Driver((13, 0), (FIRST, SECOND)), 13))
NONE = DeviceNames(Machine(None, 13))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cpu", "cpu"),
        ("1", "cuda:1"),
        ("01", "cuda:1"),
        ("2", "cuda:2"),
        ("CUDA:0", "cuda:0"),
        ("GPU-aaaa1", "cuda:1"),
        (FIRST.uuid, "cuda:0"),
        (SECOND.uuid.upper(), "cuda:1"),
        ("3b:00.0", "cuda:0"),
        ("3B:00", "cuda:0"),
        ("00000001:3B:00.0", "cuda:1"),
        ("0002:3b:00.0", None),
        ("GPU-bbbb", None),
        ("", None),
        ("auto", None),
        ("²", None),
        ("cuda:-1", None),
        ("9" * 5000, None),
        ("cuda:" + "9" * 5000, None),
    ],
)
def test_every_name_of_a_device(name: str, expected: str | None) -> None:
    assert NAMES.resolve(name) == expected


def test_the_beginning_of_two_uuids_is_refused() -> None:
    with pytest.raises(SettingError, match="'GPU-aaaa' is the beginning of the UUIDs of 2 cards"):
        NAMES.choose(["GPU-aaaa"])


def test_the_devices_that_are_chosen() -> None:
    assert NAMES.choose([]) == NAMES.choose(["auto"]) == ["cuda:0", "cuda:1"]
    assert NAMES.choose([SECOND.bus_id, "0", "cpu", SECOND.uuid]) == ["cuda:1", "cuda:0", "cpu"]
    assert NONE.choose([]) == NONE.choose(["auto", "cpu"]) == ["cpu"]


def test_why_no_card_is_used_is_told_where_all_were_asked_for() -> None:
    names = DeviceNames(Machine(Driver((13, 0), (FIRST,)), 0))
    assert names.why_cpu([]) == names.why_cpu(["auto"]) != ""
    assert names.why_cpu(["cpu"]) == NAMES.why_cpu([]) == ""
    # Without the advice to do what is being done.
    assert NONE.why_cpu([]) == "no NVIDIA driver was found (libcuda.so.1), which a GPU needs"
    old = DeviceNames(Machine(Driver((13, 0), (Card((6, 1)),)), 13))
    assert old.why_cpu([]) == "the card has compute capability 6.1, 7.5 or higher is needed"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("2", "there is no such card; there is cuda:0, cuda:1"),
        ("cuda:02", "there is no such card; there is cuda:0, cuda:1"),
        ("GPU-bbbb", "no card that this process may see is called so; cuda:0 is GPU-aaaa0000"),
        ("0000:3c:00.0", "no card that this process may see is called so"),
        ("MIG-1234", "instances of a card are chosen by CUDA_VISIBLE_DEVICES"),
        ("card", 'device "card" is not known, expected auto, cpu or cuda:N'),
    ],
)
def test_devices_that_are_not_there(name: str, expected: str) -> None:
    with pytest.raises(SettingError) as refusal:
        NAMES.choose([name])
    assert str(refusal.value).startswith(f"gpus.devices names {name!r}: ")
    assert expected in str(refusal.value)


@pytest.mark.parametrize("name", ["0", "cuda:0", "GPU-bbbb", "3b:00.0"])
def test_where_there_is_no_card_the_reason_is_told(name: str) -> None:
    with pytest.raises(SettingError, match=f"gpus.devices names '{name}': .*no NVIDIA driver was found"):
        NONE.choose([name])


def test_the_advice_is_one_that_the_daemon_can_follow() -> None:
    with pytest.raises(SettingError, match=r'with the daemon gpus\.devices = \["cpu"\]'):
        NONE.choose(["cuda:0"])


def test_the_most_exact_name_counts() -> None:
    values = {"cuda:0": 1, "0": 2, FIRST.bus_id: 3, "1": 4, "cuda:1": 5, "cpu": 6, "GPU-gone": 7}
    assert NAMES.by_device(values) == {"cuda:0": FIRST.bus_id, "cuda:1": "1", "cpu": "cpu"}
    assert NAMES.by_device({**values, FIRST.uuid: 8})["cuda:0"] == FIRST.uuid
