"""The gRPC server: all services on one address, on the supervisor's event loop, so that a thousand waiters cost no
thread.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Final

from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from cuzk_engine.client.address import Address
from cuzk_engine.client.api import MAX_MESSAGE
from cuzk_engine.client.instance import is_taken, taken_message
from cuzk_engine.daemon.access import Access, TokenCheck
from cuzk_engine.daemon.proving_engine import ProvingEngine
from cuzk_engine.daemon.services import CircuitsService, ControlService, JobsService, TelemetryService
from cuzk_engine.daemon.supervisor import Supervisor
from cuzk_engine.errors import DaemonError
from cuzk_engine.proto import cuzk_v1_pb2, cuzk_v1_pb2_grpc, engine_v1_pb2, engine_v1_pb2_grpc

_GRACE_SECONDS: Final = 0.5
_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING


def check_free(address: Address) -> None:
    """Raises DaemonError that names the holder of an address. The socket file of a dead process is removed."""
    if is_taken(address):
        raise DaemonError(taken_message(address))
    if address.path:
        try:
            status = os.lstat(address.path)
        except FileNotFoundError:
            if not os.path.isdir(os.path.dirname(address.path)):
                raise DaemonError(f"{address}: cannot be used: its folder does not exist") from None
            return
        except OSError as error:
            raise DaemonError(f"{address}: cannot be used: {(error.strerror or str(error)).lower()}") from error
        if not stat.S_ISSOCK(status.st_mode):
            raise DaemonError(
                f"{address}: there is a file of that name that is no socket; choose another daemon.listen"
            )
        os.unlink(address.path)


class Server:
    """``bind`` first, then ``start`` with the supervisor; ``stop`` leaves no socket file."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._server = aio.server(
            interceptors=[TokenCheck(access.token)] if access.token else [],
            options=[
                ("grpc.so_reuseport", 0),  # a second daemon must not share the port unnoticed
                ("grpc.max_receive_message_length", MAX_MESSAGE),
                ("grpc.max_send_message_length", MAX_MESSAGE),
            ],
        )
        self._health = health.aio.HealthServicer()
        self._names: list[str] = []
        self._path = ""

    def bind(self, address: Address) -> Address:
        """Returns the address with the port that was given for 0. Raises DaemonError."""
        check_free(address)
        before = os.umask(0o177)  # a unix socket is for its owner alone
        try:
            if self._access.credentials is not None:
                port = self._server.add_secure_port(address.target, self._access.credentials)
            else:
                port = self._server.add_insecure_port(address.target)
        except RuntimeError as error:
            reason = (
                taken_message(address) if is_taken(address) else "cannot be listened on: wrong host, or not allowed"
            )
            raise DaemonError(reason if str(address) in reason else f"{address} {reason}") from error
        finally:
            os.umask(before)
        self._path = address.path
        return address if address.path else Address(address.host, port)

    async def start(self, supervisor: Supervisor) -> None:
        engine, v1 = engine_v1_pb2_grpc, cuzk_v1_pb2_grpc
        engine.add_CircuitsServicer_to_server(CircuitsService(supervisor), self._server)
        engine.add_JobsServicer_to_server(JobsService(supervisor), self._server)
        engine.add_TelemetryServicer_to_server(TelemetryService(supervisor), self._server)
        engine.add_ControlServicer_to_server(ControlService(supervisor), self._server)
        v1.add_ProvingEngineServicer_to_server(ProvingEngine(supervisor), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        descriptors = (engine_v1_pb2.DESCRIPTOR, cuzk_v1_pb2.DESCRIPTOR)
        ours = [service.full_name for file in descriptors for service in file.services_by_name.values()]
        self._names = ["", *ours]
        reflection.enable_server_reflection([*ours, health.SERVICE_NAME, reflection.SERVICE_NAME], self._server)
        await self.set_serving(False)
        await self._server.start()

    async def set_serving(self, serving: bool) -> None:
        for name in self._names:
            await self._health.set(name, _SERVING if serving else _NOT_SERVING)

    async def stop(self) -> None:
        await self._server.stop(_GRACE_SECONDS)
        if self._path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
