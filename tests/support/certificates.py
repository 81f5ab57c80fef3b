"""Certificates and tokens for engines that ask for them."""

import shutil
import subprocess
from pathlib import Path

import pytest

TOKEN = "a token of some length"


def make_certificate(folder: Path, alternatives: str) -> Path:
    """Leaves cert.pem, key.pem and token in ``folder``, which it returns."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    names = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    extra = ["-subj", "/CN=localhost", "-addext", f"subjectAltName={alternatives}"]
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    subprocess.run([*command, *names, *extra], check=True, capture_output=True)
    (folder / "token").write_text(TOKEN + "\n")
    (folder / "token").chmod(0o600)
    return folder


def tls(folder: Path) -> str:
    return f'tls_cert = "{folder}/cert.pem"\ntls_key = "{folder}/key.pem"\ntoken_file = "{folder}/token"\n'
