"""TLS and a token, for addresses beyond this machine."""

import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cuzk_engine import config
from cuzk_engine.client import DaemonError, EngineClient, ProcessState, daemon_status, start_daemon
from cuzk_engine.client.address import parse_address
from cuzk_engine.client.connecting import connect
from cuzk_engine.daemon.access import access_for
from cuzk_engine.errors import SettingError
from tests.cli.conftest import run_process
from tests.support.certificates import TOKEN, make_certificate, tls
from tests.support.daemons import running


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cert.pem, key.pem and token."""
    return make_certificate(tmp_path_factory.mktemp("tls"), "DNS:localhost,IP:127.0.0.1")


@pytest.fixture
def certificate_of(certificate: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes a folder as ``certificate``'s, for other names."""
    return lambda names: make_certificate(tmp_path_factory.mktemp("tls"), names)


def test_only_with_certificate_and_token(cuzk_home: Path, certificate: Path) -> None:
    with running(cuzk_home, listen="127.0.0.1:0", config=tls(certificate)) as daemon:
        pem = (certificate / "cert.pem").read_bytes()
        with EngineClient(daemon.address, certificate=pem, token=TOKEN) as client:
            assert client.identify().pid == daemon.pid
            assert client.is_healthy()
            first = next(client.telemetry())
            assert first.identity is not None
        with EngineClient(daemon.address, certificate=pem, token="another token altogether") as client:
            refused: list[Callable[[], object]] = [client.identify, client.jobs, lambda: next(client.telemetry())]
            refused.append(lambda: client.submit_stream(b"x", circuit_id="x"))
            for call in refused:
                with pytest.raises(DaemonError, match="the token is missing or wrong"):
                    call()
        with EngineClient(daemon.address) as client, pytest.raises(DaemonError):
            client.identify()
        status = daemon_status()
        assert (status.state, status.pid) == (ProcessState.READY, daemon.pid)


def test_all_addresses_of_the_machine(cuzk_home: Path, certificate: Path) -> None:
    with running(cuzk_home, listen="0.0.0.0:0", config=tls(certificate)) as daemon:
        assert daemon.address.startswith("0.0.0.0:")
        status = daemon_status()
        assert (status.state, status.pid) == (ProcessState.READY, daemon.pid), status.message
        port = daemon.address.rpartition(":")[2]
        for address in ("", daemon.address, f"127.0.0.1:{port}", f"localhost:{port}"):
            with connect(address) as client:
                assert client.identify().pid == daemon.pid
        files = {"certificate": certificate / "cert.pem", "token": certificate / "token"}
        with connect(f"127.0.0.1:{port}", **files) as client:
            assert client.identify().pid == daemon.pid


def test_a_token_on_a_socket(cuzk_home: Path, certificate: Path) -> None:
    with running(cuzk_home, config=f'token_file = "{certificate}/token"\n') as daemon:
        status = daemon_status()
        assert (status.state, status.pid) == (ProcessState.READY, daemon.pid), status.message
        for address in ("", daemon.address):
            with connect(address) as client:
                assert client.identify().pid == daemon.pid
        with EngineClient(daemon.address) as client, pytest.raises(DaemonError, match="the token is missing or wrong"):
            client.identify()


def test_a_certificate_without_the_address(cuzk_home: Path, certificate_of: Callable[[str], Path]) -> None:
    folder = certificate_of("DNS:prover.example")
    with running(cuzk_home, listen="127.0.0.1:0", config=tls(folder)) as daemon:
        assert daemon_status().state is ProcessState.READY
        other = (certificate_of("DNS:prover.example") / "cert.pem").read_bytes()  # the same name, another key
        with EngineClient(daemon.address, certificate=other, token=TOKEN) as client, pytest.raises(DaemonError):
            client.identify()


def test_a_plain_connection_is_told_what_is_missing(cuzk_home: Path, certificate: Path) -> None:
    with running(cuzk_home, listen="127.0.0.1:0", config=tls(certificate)) as daemon:
        client = EngineClient(daemon.address)
        with client, pytest.raises(DaemonError) as fault:
            client.identify()
    assert str(fault.value) == (
        f"the engine at {daemon.address} asks for TLS and a token: give --cert and --token, or set daemon.tls_cert and "
        "daemon.token_file where it is your own"
    )


@pytest.mark.parametrize(
    "pem", [b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"]
)
def test_no_token_goes_out_without_a_certificate(pem: bytes) -> None:
    with pytest.raises(DaemonError, match="holds none in PEM form"):
        EngineClient("127.0.0.1:9", certificate=pem, token=TOKEN)


def test_a_certificate_with_remarks(certificate: Path) -> None:
    pem = "Zürich\n".encode() + (certificate / "cert.pem").read_bytes()
    EngineClient("127.0.0.1:9", certificate=pem, token=TOKEN).close()


@pytest.mark.parametrize("token", ["one line\nand another", "a nul\0byte in it", "pässwörter und so", "\x7f" * 20])
def test_a_token_that_no_call_can_carry(token: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DaemonError, match="expected one line of printable ASCII") as fault:
        EngineClient("127.0.0.1:9", token=token)
    assert token not in str(fault.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("missing", ["tls_cert", "tls_key", "token_file"])
def test_all_three_are_needed(certificate: Path, tmp_path: Path, missing: str) -> None:
    lines = [line for line in tls(certificate).splitlines() if not line.startswith(missing)]
    path = tmp_path / "cuzk.toml"
    path.write_text("[daemon]\n" + "\n".join(lines))
    settings = config.load(path, environment={})
    with pytest.raises(SettingError, match=f"set daemon.{missing} too"):
        access_for(parse_address("0.0.0.0:9820"), settings)


def test_a_bad_token_file(certificate: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    path = tmp_path / "cuzk.toml"
    path.write_text("[daemon]\n" + tls(certificate).replace(str(certificate / "token"), str(token)))
    settings = config.load(path, environment={})
    address = parse_address("0.0.0.0:9820")
    with pytest.raises(SettingError, match="no such file"):
        access_for(address, settings)
    token.write_text("short")
    with pytest.raises(SettingError, match="at least 16"):
        access_for(address, settings)
    token.write_text("a token of some\nlength")  # no call can carry it
    with pytest.raises(SettingError, match="expected one line"):
        access_for(address, settings)
    token.write_text(TOKEN)
    token.chmod(0o644)
    with pytest.raises(SettingError, match="others may read it"):
        access_for(address, settings)
    token.chmod(0o600)
    assert access_for(address, settings).token == TOKEN


def test_files_that_are_no_certificate_and_its_key(
    certificate: Path, certificate_of: Callable[[str], Path], tmp_path: Path
) -> None:
    cert, key, token = (certificate / name for name in ("cert.pem", "key.pem", "token"))
    another = certificate_of("DNS:localhost") / "key.pem"
    locked = tmp_path / "locked.pem"
    protect = ["openssl", "pkcs8", "-topk8", "-in", str(key), "-out", str(locked), "-passout", "pass:word"]
    subprocess.run(protect, check=True, capture_output=True)
    told = {
        (key, cert): f"daemon.tls_cert {key}: expected a certificate in PEM form, it holds none",
        (cert, another): f"daemon.tls_key {another}: is not the key of daemon.tls_cert {cert}",
        **{
            (cert, wrong): f"daemon.tls_key {wrong}: expected the private key of daemon.tls_cert, in PEM form and "
            "without a password"
            for wrong in (token, cert, locked)
        },
    }
    path = tmp_path / "cuzk.toml"
    for (first, second), message in told.items():
        path.write_text(f'[daemon]\ntls_cert = "{first}"\ntls_key = "{second}"\ntoken_file = "{token}"\n')
        with pytest.raises(SettingError) as fault:
            access_for(parse_address("0.0.0.0:9820"), config.load(path, environment={}))
        assert str(fault.value) == message
    with pytest.raises(DaemonError, match="in PEM form and without a password"):
        start_daemon(config=path, listen="127.0.0.1:0")


def test_a_certificate_for_an_engine_without_tls(cuzk_home: Path, certificate: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        page = f"127.0.0.1:{probe.getsockname()[1]}"
    with running(cuzk_home, listen="127.0.0.1:0", status_listen=page) as daemon:
        for address in (daemon.address, page):
            secured = ("--daemon", address, "--cert", certificate / "cert.pem", "--token", certificate / "token")
            done = run_process("jobs", *secured)
            told = f"cuzk: error: the program at {address} does not speak TLS: leave out --cert and --token, or check "
            assert (done.returncode, done.stdout) == (1, "")
            assert done.stderr.startswith(told)
            assert done.stderr.count("\n") == 1  # and nothing of gRPC's own


def test_only_one_line_for_a_certificate_that_does_not_fit(
    cuzk_home: Path, certificate: Path, certificate_of: Callable[[str], Path]
) -> None:
    other = certificate_of("DNS:localhost,IP:127.0.0.1") / "cert.pem"
    with running(cuzk_home, listen="127.0.0.1:0", config=tls(certificate)) as daemon:
        secured = ("--daemon", daemon.address, "--cert", other, "--token", certificate / "token")
        done = run_process("jobs", *secured)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
        assert "TLS handshake failed" in done.stderr
        assert all(line.split()[1] == "INFO" for line in daemon.stderr.splitlines())
