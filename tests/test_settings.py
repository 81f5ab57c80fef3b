"""The table of settings, the configuration file, the environment."""

from pathlib import Path

import pytest

from cuzk_engine import config
from cuzk_engine.errors import SettingError
from cuzk_engine.settings import TABLE, definition, value_text


def load(text: str, tmp_path: Path, **environment: str) -> config.Settings:
    path = tmp_path / "cuzk.toml"
    path.write_text(text)
    return config.load(path, environment=environment)


def test_every_default_is_a_value_of_its_setting() -> None:
    for item in TABLE:
        assert item.check(item.default) == item.default
        assert item.parse(value_text(item.default)) == item.default
        assert item.title
        assert item.help.endswith(".")


def test_reference_keys_and_defaults_are_known() -> None:
    defaults = {
        "daemon.listen": "127.0.0.1:9820",
        "daemon.status_listen": "127.0.0.1:9821",
        "memory.total_budget": "auto",
        "memory.safety_margin": "5GiB",
        "memory.eviction_min_idle": "5m",
        "gpus.devices": (),
        "gpus.gpu_threads": 0,
        "gpus.gpu_workers_per_device": 2,
        "scheduler.max_batch_size": 1,
        "scheduler.max_batch_wait_ms": 10000,
        "scheduler.sort_by_type": True,
        "synthesis.threads": 0,
        "pipeline.enabled": True,
        "pipeline.synthesis_lookahead": 1,
        "pipeline.synthesis_concurrency": 1,
        "pipeline.max_parallel_synthesis": 18,
        "pipeline.slot_size": 0,
        "pipeline.max_gpu_queue_depth": 0,
        "srs.param_cache": "/data/zk/params",
        "logging.level": "info",
    }
    assert {key: definition(key).default for key in defaults} == defaults


def test_a_whole_file(tmp_path: Path) -> None:
    settings = load(
        '[daemon]\nlisten = "unix:///run/x.sock"\n[gpus]\ndevices = [0, "1"]\n[pipeline]\nprestage = "off"\n'
        'double_buffer = false\n[devices."GPU-1"]\nworkers = 4\n[devices.cpu]\nworkers = 1\n',
        tmp_path,
    )
    assert settings.text("daemon.listen") == "unix:///run/x.sock"
    assert settings.texts("gpus.devices") == ("0", "1")
    assert settings.flag("pipeline.double_buffer") is False
    assert settings.source("pipeline.prestage") == "file"
    assert settings.source("cpu.arena") == "default"
    assert settings.workers("GPU-1", "cuda:0") == 4
    assert settings.workers("cpu") == 1
    assert settings.workers("GPU-2") == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[daemon]\n\nlisen = 'x'\n", ":3: unknown setting 'daemon.lisen'; did you mean 'daemon.listen'?"),
        ("[gpu]\nx = 1\n", ":1: unknown section [gpu]; did you mean 'gpus'?"),
        ("[pipeline]\nworkers = 1\n", ":2: unknown setting 'pipeline.workers'"),
        ("[srs]\nprestage = 'off'\n", ":2: unknown setting 'srs.prestage'; did you mean 'pipeline.prestage'?"),
        (
            "[gpus]\ngpu_workers_per_device = '2'\n",
            ":2: gpus.gpu_workers_per_device is '2': expected a whole number from 1 to 8",
        ),
        ("[gpus]\ngpu_workers_per_device = 0\n", "is 0: expected a whole number from 1 to 8"),
        ("[memory]\nsafety_margin = '200 gib'\n", "memory.safety_margin is '200 gib': expected a size"),
        ("[memory]\ntotal_budget = 'auto '\n", "memory.total_budget is 'auto ': expected \"auto\" or a size"),
        ("[memory]\neviction_min_idle = ''\n", "expected a duration"),
        ("[memory]\nsafety_margin = '-1GiB'\n", "expected a size"),
        ("[pipeline]\nenabled = 1\n", "pipeline.enabled is 1: expected true or false"),
        ("[gpus]\ndevices = 'all'\n", "expected a list"),
        ("[devices.cpu]\nworker = 1\n", ":2: unknown key 'worker' in [devices.\"cpu\"]; did you mean 'workers'?"),
        (
            "[devices.'cuda:0']\n\nworkers = 9\n",
            ':3: workers in [devices."cuda:0"] is 9: expected a whole number from 1 to 8',
        ),
        ("daemon = 3\n", ":1: daemon is a section"),
        ("[daemon\n", "is not TOML"),
        (f"[gpus]\ngpu_threads = {'9' * 5000}\n", "is not TOML"),
        (f"[gpus]\ndevices = {'[' * 5000}\n", "is not TOML"),
    ],
)
def test_a_fault_is_named_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError) as fault:
        load(text, tmp_path)
    assert message in str(fault.value)
    assert str(fault.value).startswith(str(tmp_path / "cuzk.toml"))
    assert "\n" not in str(fault.value)


def test_old_and_ineffective_keys_are_noted(tmp_path: Path) -> None:
    text = '[memory]\npinned_budget = "50GiB"\n[srs]\npreload = ["porep-32g"]\n[pipeline]\nslot_size = 3\n'
    notes = load(text, tmp_path).notes
    assert any("memory.pinned_budget is an old key and is ignored: memory.total_budget covers it" in n for n in notes)
    assert any("srs.preload is an old key" in note for note in notes)
    assert any(note.startswith("pipeline.slot_size (from the file) is known but has no effect") for note in notes)
    assert len(notes) == 3


def test_variables_each_give_one_line(tmp_path: Path) -> None:
    settings = load(
        "",
        tmp_path,
        BELLMAN_CUSTOM_GPU="GeForce: 1",
        RUST_GPU_TOOLS_CUSTOM_GPU="bad",
        BELLMAN_CPU_UTILIZATION="7",
        CUZK_GPU_THREADS="-3",
        CUZK_CPU_ARENA="2GiB",
    )
    assert len(settings.notes) == 5
    joined = "\n".join(settings.notes)
    assert "CUZK_GPU_THREADS=-3: invalid" in joined
    assert "CUZK_CPU_ARENA=2GiB: used" in joined
    assert joined.count("ignored") == 3
    assert settings.number("gpus.gpu_threads") == 0
    assert (settings.text("cpu.arena"), settings.source("cpu.arena")) == ("2GiB", "environment")
    with pytest.raises(SettingError, match=r"CUZK_CPU_ARENA in the environment: cpu\.arena is '2 gib'"):
        load("", tmp_path, CUZK_CPU_ARENA="2 gib")


def test_which_file_counts(tmp_path: Path, cuzk_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "REFERENCE_PATH", tmp_path / "reference.toml")
    assert config.find_file(None, {}) is None
    (tmp_path / "reference.toml").touch()
    assert config.find_file(None, {}) == tmp_path / "reference.toml"
    (cuzk_home / "config").mkdir()
    (cuzk_home / "config" / "cuzk.toml").touch()
    assert config.find_file(None, {}) == cuzk_home / "config" / "cuzk.toml"
    (tmp_path / "named.toml").touch()
    assert config.find_file(None, {"CUZK_CONFIG": str(tmp_path / "named.toml")}) == tmp_path / "named.toml"
    with pytest.raises(SettingError, match=r"other.toml: no such configuration file \(named by --config\)"):
        config.find_file(tmp_path / "other.toml", {"CUZK_CONFIG": str(tmp_path / "named.toml")})


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("jobs.retention", "999999999d", "is too large: expected at most 106751d"),
        ("memory.total_budget", "99999999TiB", "is too large: expected at most 8388607TiB"),
        ("jobs.retention", "7 days", "expected a duration"),
    ],
)
def test_too_large_is_not_badly_formed(key: str, value: str, expected: str) -> None:
    with pytest.raises(SettingError, match=f"{key} is .*{value}.*: {expected}"):
        definition(key).check(value)


def test_the_command_line_goes_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cuzk.toml"
    path.write_text('[logging]\nlevel = "error"\n')
    settings = config.load(path, overrides={"logging.level": "debug"}, environment={})
    assert (settings.text("logging.level"), settings.source("logging.level")) == ("debug", "command line")
    with pytest.raises(SettingError, match="expected one of"):
        config.load(path, overrides={"logging.level": "loud"}, environment={})
