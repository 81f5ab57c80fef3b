"""The frame of the command line: sub-commands, usage, errors, and what is loaded for what."""

import importlib
import json
import subprocess
import sys
import types

import pytest

from cuzk_engine import __version__
from cuzk_engine.cli.main import COMMANDS, main
from tests.cli.conftest import ROOT, command, run_process
from tests.support.cases import BROKEN, case


def test_version(cuzk):
    result = cuzk("--version")
    assert (result.code, result.out) == (0, f"cuzk {__version__}\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_follows_the_convention(cuzk, name):
    module = importlib.import_module(f"cuzk_engine.cli.{name}")
    assert callable(module.add_parser)
    assert callable(module.run)
    result = cuzk(name, "--help")
    assert result.code == 0
    assert result.out.startswith(f"usage: cuzk {name} ")
    assert name in cuzk("--help").out


@pytest.mark.parametrize(
    "arguments",
    [
        ["prove"],
        ["prove", "a", "b", "c"],
        ["prove", "a", "b", "c", "d", "e"],
        ["prove", "a", "b", "c", "d", "--dev", "cpu"],
        ["verify", "a"],
        ["info"],
        ["nothing"],
        ["--nothing"],
    ],
)
def test_wrong_usage_is_one_line_and_code_2(cuzk, arguments):
    result = cuzk(*arguments)
    assert result.code == 2
    assert "--help" in result.error
    assert result.out == ""


def test_no_command_shows_what_there_is(cuzk):
    result = cuzk()
    assert result.code == 2
    assert all(name in result.out for name in COMMANDS)


def test_an_unexpected_fault_is_one_line_unless_debug_is_given(cuzk, monkeypatch):
    def fail(args):
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("cuzk_engine.cli.info.run", fail)
    result = cuzk("info", "file")
    assert result.code == 1
    assert result.error == "internal fault: RuntimeError: two lines; --debug shows where it comes from"
    for arguments in (["--debug", "info", "file"], ["info", "file", "--debug"]):
        result = cuzk(*arguments)
        assert result.code == 1
        assert "Traceback" in result.err


def test_interrupted_anywhere_else(cuzk, monkeypatch):
    def interrupt(args):
        raise KeyboardInterrupt

    monkeypatch.setattr("cuzk_engine.cli.info.run", interrupt)
    result = cuzk("info", "file")
    assert (result.code, result.out, result.err) == (130, "", "")


def test_a_reader_that_goes_away_is_no_error():
    """`cuzk info FILE | head -0`, with an answer larger than a pipe's buffer."""
    process = subprocess.Popen(
        command("info", case("bn128", "mul_pub").path("circuit.zkey")),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), errors) == (0, b"")


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "1>&- 2>&-", "0<&- 1>&- 2>&-"])
def test_closed_outputs(tmp_path, closed):
    files = [case("bn128", "mul_pub").path("circuit.zkey"), BROKEN / "good.wtns", tmp_path / "p", tmp_path / "s"]
    words = " ".join(f"'{word}'" for word in command("prove", *files))
    finished = subprocess.run(
        ["sh", "-c", f"exec {words} {closed}"], cwd=ROOT, timeout=60, check=False, capture_output=True
    )
    assert finished.returncode == 0
    assert json.loads((tmp_path / "p").read_text())["protocol"] == "groth16"
    missing = f"exec {words.replace('good.wtns', 'nothing.wtns')} {closed}"
    assert subprocess.run(["sh", "-c", missing], cwd=ROOT, timeout=60, check=False, capture_output=True).returncode == 1


def loaded_by(*arguments):
    """The modules that a command loads."""
    script = (
        "import sys; from cuzk_engine.cli.main import main; code = main(sys.argv[1:]); "
        "print('\\n'.join(sys.modules), file=sys.stderr); sys.exit(code)"
    )
    words = [sys.executable, "-c", script, *map(str, arguments)]
    finished = subprocess.run(words, cwd=ROOT, timeout=60, check=False, capture_output=True, text=True)
    assert finished.returncode == 0
    return set(finished.stderr.split())


HEAVY = {"grpc", "google", "PySide6", "pyqtgraph", "sqlite3", "psutil", "asyncio", "importlib.metadata"}


def test_prove_loads_what_it_needs(tmp_path):
    files = [case("bn128", "mul_pub").path("circuit.zkey"), BROKEN / "good.wtns", tmp_path / "p", tmp_path / "s"]
    loaded = loaded_by("prove", *files)
    unneeded = HEAVY | {"cuzk_engine.client", "cuzk_engine.daemon", "py_arkworks_bls12381"}
    assert loaded & unneeded == set()
    assert {"cuzk_engine.runner", "numpy"} <= loaded


def test_small_commands_load_no_numpy():
    for arguments in (["--version"], ["--help"], ["prove", "--help"], ["daemon", "--help"]):
        loaded = loaded_by(*arguments)
        assert loaded & (HEAVY | {"numpy"}) == set()


def test_the_window_is_looked_up_by_name(cuzk, monkeypatch):
    calls = []

    def window(arguments):
        calls.append(arguments)
        return 7

    monkeypatch.setitem(sys.modules, "cuzk_gui.main", types.SimpleNamespace(main=window))
    assert cuzk("app").code == 7
    assert cuzk("app", "--demo", "out").code == 7
    assert cuzk("app", "--start").code == 7
    there = ("--daemon", "gpu-node:9820", "--cert", "ca.pem", "--token", "token")
    assert cuzk("app", *there).code == 7
    assert calls == [[], ["--demo", "out"], ["--start"], list(there)]
    assert cuzk("app", "--daemon", "gpu-node:9820", "--cert", "ca.pem").code == 2
    monkeypatch.setitem(sys.modules, "cuzk_gui.main", None)
    result = cuzk("app")
    assert result.code == 1
    assert "the window cannot be loaded" in result.error


def test_runs_as_a_module():
    finished = run_process("--version")
    assert (finished.returncode, finished.stdout) == (0, f"cuzk {__version__}\n")


def test_main_takes_the_process_arguments(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["cuzk", "--version"])
    monkeypatch.setattr("cuzk_engine.cli.main._ignore_late_signals", lambda: None)  # this process goes on
    assert main() == 0
    assert capsys.readouterr().out == f"cuzk {__version__}\n"


def test_nothing_is_imported_before_interruptions_are_handled():
    """The name `cuzk` runs imports this module first; a traceback until main() is called could not be avoided."""
    script = "import sys; before = set(sys.modules); import cuzk_engine.cli.main; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-S", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == ["__future__", "cuzk_engine", "cuzk_engine.cli", "cuzk_engine.cli.main"]


@pytest.mark.parametrize(("arguments", "code"), [(("info", BROKEN / "good.zkey"), 1), (("--help",), 0)])
def test_an_output_on_a_full_disk(arguments, code):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command(*arguments), cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    error = "cuzk: error: standard output cannot be written: no space left on device\n"
    assert (done.returncode, done.stderr) == (code, error if code else "")
