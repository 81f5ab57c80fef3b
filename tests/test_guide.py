"""The user guide says what the program does."""

import importlib.util
import re
from pathlib import Path

import pytest

from cuzk_engine.cli.main import main
from cuzk_engine.events import Cause
from cuzk_engine.settings import TABLE
from cuzk_gui.models import causes

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "guide.md"


@pytest.fixture(scope="module")
def settings_table():
    spec = importlib.util.spec_from_file_location("settings_table", ROOT / "tools" / "settings_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_settings_are_those_of_the_engine(settings_table):
    text = GUIDE.read_text(encoding="utf-8")
    assert settings_table.replaced(text) == text, "run: python tools/settings_table.py"
    named = re.findall(r"^\| `([a-z_.]+)` \|", text[text.index(settings_table.BEGIN) :], flags=re.MULTILINE)
    assert named == [item.key for item in TABLE if item.replacement is None]


def test_a_guide_without_its_marks_is_refused(settings_table):
    with pytest.raises(ValueError, match="expected"):
        settings_table.replaced("# Guide")


@pytest.mark.parametrize("page", ["guide.md", "stories.md"])
def test_pictures_and_files_that_are_named_exist(page):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (GUIDE.parent / page).read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert len(local) >= 4
    assert [link for link in local if not (GUIDE.parent / link).exists()] == []


def test_anchors_lead_somewhere():
    text = GUIDE.read_text(encoding="utf-8")
    heads = {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.+)$", text, re.M)}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= heads


def test_causes_are_called_as_in_the_window():
    text = (GUIDE.parent / "diagnosis.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| ([a-z -]+) \|$", text, flags=re.MULTILINE))
    assert rows == {str(cause): causes.name(cause) for cause in Cause}


def test_pictures_are_small():
    for picture in (ROOT / "docs" / "pictures").glob("*.png"):
        assert picture.stat().st_size <= 400_000


def test_commands_that_are_named_without_an_engine_can_have_one(capsys):
    text = " ".join(GUIDE.read_text(encoding="utf-8").split())
    named = re.findall(r"((?:`[a-z]+`(?:, | and ))*`[a-z]+`) without `--daemon`", text)
    commands = {command for some in named for command in re.findall(r"[a-z]+", some.replace(" and ", " "))}
    assert {"prove", "bench"} <= commands
    for command in commands:
        assert main([command, "--help"]) == 0
        assert "--daemon ADDR" in capsys.readouterr().out, command
