"""What a client says of programs that are no proving engine, and of none at all."""

import http.server
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager

import grpc
import pytest
from grpc_health.v1 import health, health_pb2_grpc

from cuzk_engine.client import DaemonError, EngineClient, ProcessState, daemon_status, start_daemon, stop_daemon


def fault_of(address: str) -> str:
    with EngineClient(address) as client, pytest.raises(DaemonError) as fault:
        client.identify(timeout=3)
    assert "\n" not in str(fault.value)
    return str(fault.value)


@contextmanager
def web_server() -> Iterator[int]:
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def silent_server() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextmanager
def other_grpc_server() -> Iterator[int]:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_nobody() -> None:
    port = free_port()
    assert fault_of(f"127.0.0.1:{port}").startswith(f"no engine answers at 127.0.0.1:{port}: start it")
    assert fault_of("unix:///nowhere/at/all").startswith("no engine answers at unix:///nowhere/at/all")
    status = daemon_status(f"127.0.0.1:{port}")
    assert (status.state, status.address) == (ProcessState.STOPPED, f"127.0.0.1:{port}")


def test_a_web_server() -> None:
    with web_server() as port:
        assert "not a proving engine" in fault_of(f"127.0.0.1:{port}")
        assert daemon_status(f"127.0.0.1:{port}").state is ProcessState.FOREIGN


def test_another_grpc_server() -> None:
    with other_grpc_server() as port:
        assert "not a proving engine" in fault_of(f"127.0.0.1:{port}")
        status = daemon_status(f"127.0.0.1:{port}")
        assert status.state is ProcessState.FOREIGN


def test_a_silent_server() -> None:
    with silent_server() as port:
        assert str(port) in fault_of(f"127.0.0.1:{port}")
        status = daemon_status(f"127.0.0.1:{port}")
        assert status.state is ProcessState.FOREIGN
        assert f"127.0.0.1:{port} is in use by pid" in status.message
        with pytest.raises(DaemonError, match=f"127.0.0.1:{port} is in use by pid"):
            start_daemon(listen=f"127.0.0.1:{port}")
        with pytest.raises(DaemonError, match="nothing of ours to stop"):
            stop_daemon(address=f"127.0.0.1:{port}")


def test_a_closed_client_says_so() -> None:
    client = EngineClient(f"127.0.0.1:{free_port()}")
    client.close()
    client.close()
    with pytest.raises(DaemonError, match="was closed"):
        client.identify()


def test_importing_the_client_does_not_import_grpc() -> None:
    code = (
        "import sys, cuzk_engine.client; print([m for m in ('grpc', 'google.protobuf', 'numpy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
