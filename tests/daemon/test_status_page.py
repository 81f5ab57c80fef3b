"""/status, /metrics and /healthz over HTTP."""

import json
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuzk_engine.client import EngineClient
from tests.support.daemons import Daemon, Witnesses, finished, running, until


@pytest.fixture(scope="module")
def page() -> Iterator[tuple[Daemon, str]]:
    home = Path(tempfile.mkdtemp(prefix="cuzk-s-"))
    path = f"{home}/run/status.sock"
    try:
        with running(home, status_listen=f"unix://{path}") as daemon:
            yield daemon, path
    finally:
        shutil.rmtree(home, ignore_errors=True)


def ask(path: str, *parts: bytes) -> tuple[int, dict[str, str], bytes]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(path)
        for part in parts:
            connection.sendall(part)
        answer = b""
        while data := connection.recv(65536):
            answer += data
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in lines), body


def get(path: str, target: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    return ask(path, f"{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


def test_pages(page: tuple[Daemon, str]) -> None:
    _, path = page
    assert get(path, "/healthz")[::2] == (200, b"ready\n")
    code, headers, body = get(path, "/metrics?x=1")
    assert code == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b"cuzk_proofs_completed_total" in body
    assert int(headers["Content-Length"]) == len(body)


@pytest.mark.parametrize(
    ("target", "method", "code"),
    [
        ("/statusfoo", "GET", 404),
        ("/", "GET", 404),
        ("/status", "POST", 405),
        ("/status", "HEAD", 200),
        ("/x", "HEAD", 404),
    ],
)
def test_codes(page: tuple[Daemon, str], target: str, method: str, code: int) -> None:
    found, headers, body = get(page[1], target, method)
    assert found == code
    assert "Access-Control-Allow-Origin" not in headers
    if method == "HEAD":
        assert body == b""
        assert int(headers["Content-Length"]) > 0


def test_requests_in_pieces_and_no_requests(page: tuple[Daemon, str]) -> None:
    path = page[1]
    assert ask(path, b"GET /hea", b"lthz HTT", b"P/1.1\r\n", b"\r\n")[0] == 200
    assert ask(path, b"hello\r\n\r\n")[0] == 400
    assert ask(path, b"GET /status HTTP/1.1\r\nX: " + b"x" * 20_000)[0] == 400


def test_idle_connections_do_not_block(page: tuple[Daemon, str]) -> None:
    path = page[1]
    idle = []
    for _ in range(100):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
        idle.append(connection)
    assert get(path, "/healthz")[0] == 200
    for connection in idle:
        connection.close()


def test_the_document(page: tuple[Daemon, str], tmp_path: Path) -> None:
    daemon, path = page
    witnesses = Witnesses(tmp_path)
    with EngineClient(daemon.address) as client:
        job = client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=20), request_id="mine")
        until(client, job, "running")
        document = json.loads(get(path, "/status")[2])
        assert set(document) == {
            "uptime_secs",
            "memory",
            "synthesis",
            "pipelines",
            "gpu_workers",
            "allocations",
            "counters",
            "buffers",
        }
        (pipeline,) = [entry for entry in document["pipelines"] if entry["job_id"] == "mine"]
        assert pipeline["partitions"][0]["state"] in ("synthesizing", "gpu")
        workers = {worker["worker_id"]: worker for worker in document["gpu_workers"]}
        assert (workers[0]["state"], workers[0]["current_job"], workers[1]["state"]) == ("proving", job.id, "idle")
        client.cancel(job.id)
        finished(client, job)
        document = json.loads(get(path, "/status")[2])
        assert {worker["state"] for worker in document["gpu_workers"]} == {"idle"}
        assert [entry["partitions"][0]["state"] for entry in document["pipelines"]] == ["failed"]
