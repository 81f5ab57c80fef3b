"""`cuzk settings`: a running engine's settings, seen and changed from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cuzk_engine.client import EngineClient, SettingChange
from tests.cli.conftest import Cuzk, Result
from tests.support.daemons import Daemon, running, running_alone

WORKERS = "gpus.gpu_workers_per_device"
CONFIG = '[pipeline]\nprestage = "locked"\n[devices.cpu]\nworkers = 3\n'


@pytest.fixture(scope="module")
def shared() -> Iterator[Daemon]:
    with running_alone(config=CONFIG) as daemon:
        yield daemon


@pytest.fixture
def client(shared: Daemon) -> Iterator[EngineClient]:
    """The engine's settings are the same again afterwards."""
    with shared.client() as connection:
        before = connection.settings()
        yield connection
        after = {(item.key, item.device): item.value for item in connection.settings()}
        connection.apply_settings(
            SettingChange(item.key, item.value, item.device)
            for item in before
            if after[item.key, item.device] != item.value
        )


@pytest.fixture
def settings(cuzk: Cuzk, shared: Daemon) -> Cuzk:
    def run(*arguments: Any) -> Result:
        return cuzk("settings", *arguments, "--daemon", shared.address)

    return run


def value_of(client: EngineClient, key: str, device: str = "") -> str:
    return next(item.value for item in client.settings() if (item.key, item.device) == (key, device))


def test_all_of_them(settings: Cuzk, client: EngineClient) -> None:
    result = settings()
    assert (result.code, result.err) == (0, "")
    header, *rows = result.out.splitlines()
    assert header.split() == ["setting", "value", "default", "from", "changes"]
    assert len(rows) == len(client.settings())
    found = [row.split() for row in rows]
    assert ["pipeline.prestage", "locked", "ahead", "file", "live"] in found
    assert [WORKERS, "on", "cpu", "3", "2", "file", "live"] in found
    assert ["daemon.tls_key", '""', '""', "default", "at", "start"] in found
    assert ["pipeline.slot_size", "0", "0", "default", "no", "effect"] in found
    document = json.loads(settings("list", "--json").out)["settings"]
    assert [item["key"] for item in document] == [item.key for item in client.settings()]


def test_some_of_them(settings: Cuzk) -> None:
    def keys(*arguments: str) -> list[str]:
        return [item["key"] for item in json.loads(settings("list", *arguments, "--json").out)["settings"]]

    assert keys("workers") == [WORKERS, WORKERS]
    assert keys("residency", "pipeline.prestage") == ["srs.residency", "pipeline.prestage"]
    for arguments in (("pipeline.prestage",), ("--changed", "pipeline.prestage"), ("pipeline.prestage", "--changed")):
        assert "pipeline.prestage  locked" in settings(*arguments).out
    assert settings("--changed", "jobs").out == "all settings are at their defaults\n"
    assert "did you mean 'workers'" in settings("wrkers").error
    assert settings("list", "--chnged").error == "unrecognized arguments: --chnged (see cuzk settings list --help)"
    assert set(keys("jobs")) == {"jobs.retention", "jobs.keep_finished"}
    assert "pipeline.prestage" in keys("--changed")
    assert keys("--changed", "jobs") == []
    assert settings("list", "--changed", "jobs").out == "all settings are at their defaults\n"
    for name, meant in (("prestag", "prestage"), ("pipelin", "pipeline"), ("keep_finish", "jobs.keep_finished")):
        assert settings("list", name).error == f"unknown setting {name!r}; did you mean {meant!r}?"
    wrong = settings("list", "pipeline.prestaging")
    assert (wrong.code, wrong.out) == (1, "")
    assert wrong.error == "unknown setting 'pipeline.prestaging'; did you mean 'pipeline.prestage'?"


def test_changing(settings: Cuzk, client: EngineClient) -> None:
    result = settings("set", "prestage=off", "double_buffer=off", "scheduler.aging=2m")
    assert (result.code, result.err) == (0, "")
    assert sorted(result.out.splitlines()) == [
        "pipeline.double_buffer = false (was true)",
        "pipeline.prestage = off (was locked)",
        "scheduler.aging = 2m (was 1m)",
    ]
    assert value_of(client, "pipeline.prestage") == "off"
    again = settings("set", "prestage=off")
    assert (again.code, again.out) == (0, "nothing to change: the engine is set so already\n")
    document = json.loads(settings("set", "prestage=ahead", "--json").out)["changed"]
    assert [(item["key"], item["value"], item["source"]) for item in document] == [
        ("pipeline.prestage", "ahead", "changed while running")
    ]


def test_a_change_that_makes_no_difference_on_a_device_says_so(cuzk: Cuzk, cuzk_home: Path) -> None:
    with running(cuzk_home, fake=False) as daemon:
        result = cuzk("settings", "set", "double_buffer=off", "prestage=off", "--daemon", daemon.address)
    assert result.out.splitlines() == [
        "pipeline.prestage = off (was ahead)",
        "pipeline.double_buffer = false (was true); makes no difference on cpu",
    ]


def test_changing_one_device(settings: Cuzk, client: EngineClient) -> None:
    result = settings("set", "workers=1", "--device", "cpu")
    assert result.out == f"{WORKERS} on cpu = 1 (was 3)\n"
    assert (value_of(client, WORKERS, "cpu"), value_of(client, WORKERS)) == ("1", "2")


def test_a_device_with_a_value_of_its_own(settings: Cuzk, client: EngineClient) -> None:
    how = "--device cpu changes that, with NAME=default to what the others have"
    result = settings("set", "workers=4")
    assert result.out.splitlines() == [f"{WORKERS} = 4 (was 2)", f"{WORKERS} on cpu stays 3, a value of its own: {how}"]
    result = settings("set", "workers=default", "--device", "cpu")
    assert (result.code, result.out) == (0, f"{WORKERS} on cpu = 4 (was 3)\n")
    assert [item.device for item in client.settings() if item.key == WORKERS] == [""]
    assert client.identify().devices[0].workers == 4
    again = settings("set", "workers=default", "--device", "cpu")
    assert (again.code, again.out) == (0, "nothing to change: the engine is set so already\n")
    assert "expected a whole number" in settings("set", "workers=default").error
    settings("set", "workers=3", "--device", "cpu")


def test_a_change_back_to_the_default_is_one(settings: Cuzk, client: EngineClient) -> None:
    settings("set", "prestage=ahead")
    listed = settings("list", "pipeline.prestage", "--changed").out.splitlines()
    assert [row.split()[:3] for row in listed[1:]] == [["pipeline.prestage", "ahead", "ahead"]]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("prestage",), 2, '"prestage" is not understood, expected NAME=VALUE, as in workers=2'),
        (("=2",), 2, '"=2" is not understood'),
        (
            ("workers=2", "prestage=off", "gpus.gpu_workers_per_device=3"),
            2,
            "gpus.gpu_workers_per_device is set twice, expected one value",
        ),
        ((), 2, "the following arguments are required: NAME=VALUE"),
        (("prestage=early",), 1, 'expected one of "off", "locked", "ahead"'),
        (("workers=9",), 1, "expected a whole number from 1 to 8"),
        (("pipeline.prestaged=off",), 1, "unknown setting 'pipeline.prestaged'; did you mean 'pipeline.prestage'?"),
        (("wrkers=2",), 1, "unknown setting 'wrkers'; did you mean 'workers'?"),
        (("agin=2m",), 1, "unknown setting 'agin'; did you mean 'scheduler.aging'?"),
        (("aging=2m",), 1, "unknown setting 'aging'; did you mean 'scheduler.aging'?"),
        (("workers=1", "memory.total_budget=900TiB"), 1, 'memory.total_budget is "900TiB": there are '),
        (("daemon.listen=127.0.0.1:1",), 1, "daemon.listen cannot change while the daemon runs"),
        (("pipeline.slot_size=3",), 1, "pipeline.slot_size is known but has no effect in this version"),
        (("prestage=off", "--device", "cpu"), 1, "pipeline.prestage has no value of its own for one device"),
        (("workers=1", "--device", "cuda:9"), 1, "unknown device 'cuda:9'; known: cpu"),
        (("double_buffer=off", "prestage=early"), 1, "pipeline.prestage"),
        (("workers=1", "--device", ""), 2, "--device: the name of the device is empty"),
        (("workers=\udcff",), 1, "is not UTF-8, which the engine's protocol needs"),
    ],
)
def test_all_or_nothing_and_one_line(
    settings: Cuzk, client: EngineClient, arguments: tuple[str, ...], code: int, message: str
) -> None:
    before = client.settings()
    result = settings("set", *arguments)
    assert (result.code, result.out) == (code, "")
    assert message in result.error
    assert client.settings() == before


def test_no_engine(cuzk: Cuzk, cuzk_home: Path) -> None:
    for arguments in ((), ("set", "workers=1")):
        result = cuzk("settings", *arguments, "--daemon", f"unix://{cuzk_home}/none.sock")
        assert result.code == 1
        assert "no engine answers at" in result.error
