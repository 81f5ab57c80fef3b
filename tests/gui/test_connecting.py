"""An engine at an address: reached with the certificate and the token that it asks for, or told what is missing."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QLineEdit
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from cuzk_engine.client import ProcessState
from cuzk_gui import main
from cuzk_gui.application import Application
from cuzk_gui.demo import free_port
from cuzk_gui.engine import LocalEngine
from cuzk_gui.models.process import Action
from cuzk_gui.preferences import MOST_ENGINES, OnClose, Preferences
from cuzk_gui.remote import Access, RemoteEngine, problem
from cuzk_gui.theme import Theme
from cuzk_gui.widgets.connect_dialog import ConnectDialog
from cuzk_gui.widgets.prove_dialog import ProveDialog
from cuzk_gui.window import MainWindow
from tests.gui.conftest import OpenWindow
from tests.gui.fakes import FakeEngine
from tests.support.certificates import make_certificate, tls
from tests.support.daemons import Daemon, running

WAIT_MS = 30_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cert.pem, key.pem and token."""
    return make_certificate(tmp_path_factory.mktemp("tls"), "DNS:localhost,IP:127.0.0.1")


@pytest.fixture
def secured(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """An engine of somebody else, that asks for TLS and a token."""
    home = tmp_path_factory.mktemp("elsewhere")
    with running(home, listen="127.0.0.1:0", config=tls(files), fake=False) as daemon:
        yield daemon


@pytest.fixture
def application(theme: Theme, preferences: Preferences, qtbot: QtBot) -> Iterator[Application]:
    made = Application(theme, preferences)
    yield made
    if made.window is not None:
        window = made.window
        window.close_quietly()
        window.deleteLater()
    assert made.clean_end


def access_to(daemon: Daemon, files: Path) -> Access:
    return Access(daemon.address, str(files / "cert.pem"), str(files / "token"))


def is_ready(window: MainWindow) -> bool:
    return window.session.identity is not None and window.top.pill.word == "Ready"


def test_a_proof_by_an_engine_that_asks_for_tls_and_a_token(
    secured: Daemon, files: Path, application: Application, qtbot: QtBot, tmp_path: Path
) -> None:
    """Its machine has the key; the witness goes there from this one."""
    window = application.show_at(access_to(secured, files))
    qtbot.waitUntil(lambda: is_ready(window), timeout=WAIT_MS)
    assert secured.address in window.top.address
    assert "over TLS" in window.top.facts
    assert not any(button.isVisible() for button in window.top.buttons.values())
    assert not window.banner.isVisible()
    folder = Path(__file__).parents[2] / "assets" / "demo"
    (key,), (witness,) = folder.glob("*.zkey"), folder.glob("*.wtns")
    there = secured.home / "key.zkey"
    shutil.copyfile(key, there)
    (here := tmp_path / "only-here.wtns").write_bytes(witness.read_bytes())
    window.proofs.ask()
    dialog = window.findChild(ProveDialog)
    assert dialog is not None
    dialog.key_edit.setText(str(there))
    dialog.witness_edit.setText(str(here))
    dialog.submit.click()
    qtbot.waitUntil(lambda: "verified" in window.notice.label.text(), timeout=WAIT_MS)


def test_files_are_remembered_once_the_engine_has_answered(
    secured: Daemon, files: Path, application: Application, preferences: Preferences, qtbot: QtBot, tmp_path: Path
) -> None:
    right = access_to(secured, files)
    other = make_certificate(tmp_path, "DNS:localhost,IP:127.0.0.1") / "cert.pem"
    window = application.show_at(Access(secured.address, str(other), right.token))
    qtbot.waitUntil(
        lambda: (status := window.controller.engine.status) is not None and "does not fit the engine" in status.message,
        timeout=WAIT_MS,
    )
    assert preferences.engines == []
    window = application.show_at(right)
    qtbot.waitUntil(lambda: is_ready(window), timeout=WAIT_MS)
    assert preferences.engines == [right]


def test_what_is_missing_is_said_in_one_line(secured: Daemon, files: Path, tmp_path: Path) -> None:
    address, right = secured.address, access_to(secured, files)
    (wrong_token := tmp_path / "token").write_text("another token altogether\n")
    other = make_certificate(tmp_path, "DNS:localhost,IP:127.0.0.1") / "cert.pem"
    wrong_token.write_text("another token altogether\n")
    assert RemoteEngine(right).status().state is ProcessState.READY
    told = {
        Access(address): f"the engine at {address} asks for TLS and a token: choose its certificate and token file",
        Access(address, right.certificate, str(wrong_token)): (
            f"the engine at {address} refuses the token of {wrong_token}: choose a copy of its daemon.token_file"
        ),
        Access(address, str(other), right.token): (
            f"the certificate {other} does not fit the engine at {address}: choose its daemon.tls_cert, or an address "
            "that this certificate names"
        ),
    }
    for access, message in told.items():
        status = RemoteEngine(access).status()
        assert (status.state, status.message) == (ProcessState.FOREIGN, message)


def test_an_engine_without_tls_is_not_asked_for_it(files: Path, tmp_path: Path) -> None:
    with running(tmp_path, listen="127.0.0.1:0") as daemon:
        assert RemoteEngine(Access(daemon.address)).status().state is ProcessState.READY
        message = RemoteEngine(access_to(daemon, files)).status().message
    assert message == (
        f"what answers at {daemon.address} does not speak TLS: correct the address, or leave both files empty"
    )


def test_nobody_is_there() -> None:
    address = f"127.0.0.1:{free_port()}"
    status = RemoteEngine(Access(address)).status()
    assert status.message == (f"no engine answers at {address}: start it (`cuzk daemon start`), or correct the address")


def test_this_machines_own_engine_with_tls(
    cuzk_home: Path, files: Path, theme: Theme, preferences: Preferences, qtbot: QtBot
) -> None:
    """Its certificate and token are those of the configuration."""
    with running(cuzk_home, listen="127.0.0.1:0", config=tls(files)):
        window = MainWindow(LocalEngine(), theme, preferences)
        window.show()
        qtbot.waitUntil(lambda: is_ready(window), timeout=WAIT_MS)
        window.close_quietly()
        window.deleteLater()


def test_another_engine_is_chosen_in_the_window(
    cuzk_home: Path, secured: Daemon, files: Path, application: Application, preferences: Preferences, qtbot: QtBot
) -> None:
    own = cuzk_home / "config" / "cuzk.toml"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(f'[daemon]\nlisten = "127.0.0.1:{free_port()}"\n')
    first = application.show(LocalEngine())
    qtbot.waitUntil(lambda: first.top.pill.word == "Stopped", timeout=WAIT_MS)
    dialog = first.choose_engine()
    dialog.address_box.setEditText(secured.address)
    dialog.connect_button.click()
    qtbot.waitUntil(lambda: "asks for TLS and a token" in dialog.problem, timeout=WAIT_MS)
    assert dialog.isVisible()
    assert dialog.connect_button.text() == "Connect"
    right = access_to(secured, files)
    dialog.fill(right)
    dialog.connect_button.click()
    qtbot.waitUntil(lambda: application.window is not first, timeout=WAIT_MS)
    second = application.window
    assert second is not None
    qtbot.waitUntil(lambda: not isValid(first), timeout=WAIT_MS)  # it has closed, and nothing of it is left
    qtbot.waitUntil(lambda: is_ready(second), timeout=WAIT_MS)
    assert preferences.engines == [right]
    again = second.choose_engine()
    assert again.access == right
    again.own_asked.emit()
    third = application.window
    assert third is not None
    assert third is not second
    qtbot.waitUntil(lambda: third.top.pill.word == "Stopped", timeout=WAIT_MS)
    assert third.top.buttons[Action.START].isVisible()


class TestWindow:
    """With an engine that does not exist."""

    @pytest.fixture
    def engine(self) -> FakeEngine:
        return FakeEngine(ProcessState.READY, elsewhere="over TLS")

    def test_it_is_not_ended_with_the_window(
        self, engine: FakeEngine, open_window: OpenWindow, preferences: Preferences, qtbot: QtBot
    ) -> None:
        preferences.on_close = OnClose.STOP
        window = open_window(engine)
        qtbot.waitUntil(lambda: is_ready(window), timeout=WAIT_MS)
        window.close()
        assert not window.isVisible()
        assert engine.calls == []

    def test_what_is_of_this_machine_is_not_offered(
        self, engine: FakeEngine, open_window: OpenWindow, qtbot: QtBot
    ) -> None:
        window = open_window(engine)
        qtbot.waitUntil(lambda: is_ready(window), timeout=WAIT_MS)
        assert window.proofs.demo is None
        assert not window.circuits._register.isVisible()
        assert not any(action.isEnabled() for action in window.menu.engine.values())

    def test_a_fault_has_a_button_that_asks_again(
        self, engine: FakeEngine, open_window: OpenWindow, qtbot: QtBot
    ) -> None:
        engine.state, engine.message = ProcessState.FOREIGN, "no engine answers at gpu-node:9820: start it there"
        window = open_window(engine)
        qtbot.waitUntil(lambda: window.top.pill.word == "Not reached", timeout=WAIT_MS)
        assert window.banner.label.text() == "No engine answers at gpu-node:9820: start it there"
        assert window.banner.button.text() == "Connect…"
        window.banner.button.click()
        dialog = window.findChild(ConnectDialog)
        assert dialog is not None
        dialog.reject()

    def test_nothing_is_handed_in_before_it_answers(
        self, engine: FakeEngine, open_window: OpenWindow, qtbot: QtBot, tmp_path: Path
    ) -> None:
        engine.hang = True
        window = open_window(engine)
        (witness := tmp_path / "a.wtns").write_bytes(b"wtns")
        window.proofs.ask()
        dialog = window.findChild(ProveDialog)
        assert dialog is not None
        assert dialog.submit.text() == "Prove"
        dialog.key_edit.setText("keys/a.zkey")
        dialog.witness_edit.setText(str(witness))
        dialog.submit.click()
        assert "whole path on the engine's machine" in dialog.problem
        dialog.key_edit.setText("/keys/a.zkey")
        dialog.submit.click()
        assert window.notice.label.text() == "The engine takes no jobs now: checking…"
        assert engine.calls == []

    def test_the_key_used_last_is_filled_in(self, engine: FakeEngine, open_window: OpenWindow, qtbot: QtBot) -> None:
        engine.register("/keys/merkle10.zkey", "merkle10")
        window = open_window(engine)
        qtbot.waitUntil(lambda: len(window.controller.circuits) == 1, timeout=WAIT_MS)
        window.proofs.ask()
        dialog = window.findChild(ProveDialog)
        assert dialog is not None
        assert dialog.key == "/keys/merkle10.zkey"
        dialog.reject()


class TestDialog:
    @pytest.fixture
    def dialog(self, preferences: Preferences, qtbot: QtBot) -> ConnectDialog:
        preferences.remember_engine(Access("gpu-node:9820", "/tls/ca.pem", "/tls/token"))
        self.asked: list[tuple[Access, object]] = []
        made = ConnectDialog(preferences, lambda access, done, failed: self.asked.append((access, done)), None)
        qtbot.addWidget(made)
        made.show()
        return made

    def test_a_known_address_brings_its_files(self, dialog: ConnectDialog) -> None:
        assert not dialog.connect_button.isEnabled()
        dialog.address_box.setEditText("gpu-node:9820")
        assert dialog.access == Access("gpu-node:9820", "/tls/ca.pem", "/tls/token")

    def test_files_are_looked_at_before_anybody_is_asked(self, dialog: ConnectDialog) -> None:
        dialog.address_box.setEditText("gpu-node:9820")
        dialog.connect_button.click()
        assert dialog.problem.startswith("Certificate /tls/ca.pem cannot be read: no such file or directory; choose")
        assert not self.asked

    def test_an_answer_that_comes_too_late_counts_for_nothing(self, dialog: ConnectDialog) -> None:
        dialog.address_box.setEditText("127.0.0.1:9820")
        dialog.connect_button.click()
        assert dialog.connect_button.text() == "Connecting…"
        dialog.address_box.setEditText("127.0.0.1:9821")
        ((_, done),) = self.asked
        done(None)  # type: ignore[operator]
        assert dialog.isVisible()

    def test_every_field_has_a_name(self, dialog: ConnectDialog) -> None:
        fields = [dialog.address_box, dialog.certificate_edit, dialog.token_edit]
        assert [field.accessibleName() for field in fields] == ["Address", "Certificate", "Token file"]
        assert isinstance(dialog.address_box.lineEdit(), QLineEdit)


class TestProblem:
    @pytest.mark.parametrize(
        ("access", "words"),
        [
            (Access("gpu-node"), "is not one: expected host:port"),
            (Access("10.0.0.5:9820"), "beyond this machine (10.0.0.5:9820) asks for TLS and a token: choose copies"),
            (Access("gpu-node:9820", certificate="/ca.pem"), "choose the token file too"),
            (Access("gpu-node:9820", token="/token"), "choose the certificate too"),
            (Access("gpu-node:9820", "/gone.pem", "/token"), "certificate /gone.pem cannot be read: no such file"),
        ],
    )
    def test_one_line(self, access: Access, words: str) -> None:
        assert words in problem(access)
        assert "\n" not in problem(access)

    def test_files(self, files: Path, tmp_path: Path) -> None:
        cert, token = str(files / "cert.pem"), str(files / "token")
        (bad := tmp_path / "bad").write_text("short")
        assert problem(Access("gpu-node:9820", cert, token)) == ""
        assert "holds no certificate in PEM form; choose the PEM file" in problem(Access("a:1", str(bad), token))
        assert "expected one line of at least 16 ASCII characters" in problem(Access("a:1", cert, str(bad)))
        bad.write_bytes(b"\xff" * 40)
        assert "holds no text" in problem(Access("a:1", cert, str(bad)))
        assert "holds no certificate" in problem(Access("a:1", str(bad), token))
        assert "it is not a plain file" in problem(Access("a:1", cert, str(tmp_path)))

    def test_this_machine_needs_none(self) -> None:
        for address in ("127.0.0.1:9820", "[::1]:9820", "localhost:9820", "unix:///run/cuzk.sock"):
            assert problem(Access(address)) == ""


class TestRemembered:
    def test_the_last_ones_first_and_once(self, preferences: Preferences) -> None:
        for number in range(MOST_ENGINES + 3):
            preferences.remember_engine(Access(f"node-{number}:9820"))
        preferences.remember_engine(Access("node-9:9820", "/ca.pem", "/token"))
        found = preferences.engines
        assert found[0] == Access("node-9:9820", "/ca.pem", "/token")
        assert len(found) == MOST_ENGINES
        assert len({one.address for one in found}) == MOST_ENGINES

    @pytest.mark.parametrize("text", ["[[1, 2, 3]]", '[["a"], ["b", "c", "d", "e"]]', "{}", "7", "nonsense"])
    def test_what_cannot_be_read_is_not_there(self, preferences: Preferences, text: str) -> None:
        preferences._settings.setValue("engines", text)
        assert preferences.engines == []

    def test_options_of_the_command(self, preferences: Preferences, monkeypatch: pytest.MonkeyPatch) -> None:
        preferences.remember_engine(Access("gpu-node:9820", "/tls/ca.pem", "/tls/token"))
        parse = main._parser().parse_args
        assert main._access(parse([]), preferences) is None
        assert main._access(parse(["--daemon", "gpu-node:9820"]), preferences) == preferences.engines[0]
        assert main._access(parse(["--daemon", "other:9820"]), preferences) == Access("other:9820")
        given = parse(["--daemon", "gpu-node:9820", "--cert", "/a.pem", "--token", "/b"])
        assert main._access(given, preferences) == Access("gpu-node:9820", "/a.pem", "/b")

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--daemon", "a:1", "--cert", "x"], "--cert and --token go together"),
            (["--cert", "x", "--token", "y"], "name it with --daemon"),
            (["--daemon", "a:1", "--start"], "is started where it is"),
        ],
    )
    def test_wrong_usage(self, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as raised:
            main.main(arguments)
        assert raised.value.code == 2
        assert words in capsys.readouterr().err
