"""The two stories of `tools/stories.py` with small circuits: a real engine, the real window."""

import subprocess
import sys
from pathlib import Path

import pytest

from cuzk_gui.theme import Theme
from tests.support.stories import Circuit, Recorder, StoryError
from tools import stories
from tools.stories import Stage


@pytest.fixture
def circuit(tmp_path: Path) -> Circuit:
    return Circuit.make("porep:2^9", tmp_path / "circuit")


def test_a_memory_failure_explains_itself_and_its_button_cures_it(
    circuit: Circuit, theme: Theme, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(stories.NO_PLAN, "1")
    with Stage(circuit, stories.memory_settings(circuit), theme, None) as stage:
        stories.memory_story(stage, partitions=4)


@pytest.mark.slow
def test_idle_gaps_have_their_cause_and_the_suggested_switch_shrinks_them(
    circuit: Circuit, theme: Theme, tmp_path: Path
) -> None:
    with Stage(circuit, stories.IDLE_SETTINGS, theme, None) as stage:
        recorder = Recorder(tmp_path / "idle.cuzkrec", stage.address)
        try:
            stories.idle_story(stage, partitions=16, shrinks_to=0.8)
        finally:
            recorder.stop()
        stories.watch_recording(stage, recorder.file)


@pytest.mark.slow
def test_a_step_that_does_not_happen_ends_the_story(circuit: Circuit, theme: Theme) -> None:
    """With its plan the engine lets no allocation fail, so that the first story cannot be told."""
    with (
        Stage(circuit, stories.memory_settings(circuit), theme, None) as stage,
        pytest.raises(StoryError, match="no allocation failed"),
    ):
        stories.memory_story(stage, partitions=4)


@pytest.mark.parametrize("command", [["window_pictures.py"], ["stories.py", "idle", "--pictures"]])
def test_a_folder_that_cannot_be_is_said_before_anything_runs(tmp_path: Path, command: list[str]) -> None:
    (file := tmp_path / "notes").write_text("no folder")
    tool = Path(stories.__file__).with_name(command[0])
    ran = subprocess.run(
        [sys.executable, tool, *command[1:], file / "pictures"], capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == f"cuzk: error: {file / 'pictures'}: no folder for pictures: not a directory\n"


def test_a_missing_folder_for_pictures_is_made(tmp_path: Path) -> None:
    stories.make_folder(tmp_path / "guide" / "pictures")
    assert (tmp_path / "guide" / "pictures").is_dir()
