"""A setting that a device process has for life changes while the process is not at rest."""

import os
import signal
from pathlib import Path

import grpc
import pytest

from cuzk_engine.client import CuzkError, DaemonError, JobState, SettingChange
from cuzk_engine.client.address import parse_address
from cuzk_engine.proto import engine_v1_pb2 as pb
from cuzk_engine.proto.engine_v1_pb2_grpc import ControlStub
from tests.support.daemons import Witnesses, finished, running, until, wait_for

ARENA = SettingChange("cpu.arena", "2MiB")


def test_a_process_that_dies_before_it_is_renewed_costs_no_job(cuzk_home: Path, witnesses: Witnesses) -> None:
    with running(cuzk_home) as daemon, daemon.client() as client:
        job = until(client, client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=0.5)), "running")
        client.apply_settings([ARENA])
        os.kill(daemon.device_pid(), signal.SIGKILL)
        last = finished(client, job)
        assert (last.state, last.attempts) == (JobState.COMPLETED, 2)
        assert client.identify().devices[0].capacity == 2 << 20


@pytest.mark.parametrize("times", [1, 3])
def test_a_change_while_the_process_starts_is_not_lost(cuzk_home: Path, times: int) -> None:
    with running(cuzk_home) as daemon, daemon.client() as client:
        for number in range(1, times + 1):
            before = daemon.device_pid()
            os.kill(before, signal.SIGKILL)
            wait_for(lambda before=before: daemon.device_pid() not in (0, before))  # it has its options by now
            client.apply_settings([SettingChange("cpu.arena", f"{number}MiB")])
        wait_for(lambda: client.identify().devices[0].capacity == times << 20)
        wait_for(lambda: client.identify().devices[0].state == "ready")


def test_a_plan_is_to_be_asked_for_again_while_the_process_is_renewed(cuzk_home: Path, witnesses: Witnesses) -> None:
    with running(cuzk_home) as daemon, daemon.client() as client:
        job = until(client, client.submit(key_path=witnesses.key, witness_path=witnesses(seconds=600)), "running")
        client.apply_settings([ARENA])  # the process ends when the job has
        why = "device cpu is restarting: its settings changed"
        with grpc.insecure_channel(parse_address(daemon.address).target) as channel:
            with pytest.raises(grpc.RpcError) as refusal:
                ControlStub(channel).Plan(pb.PlanRequest(key_path=str(witnesses.key)))
            assert (refusal.value.code(), refusal.value.details()) == (grpc.StatusCode.UNAVAILABLE, why)
        with pytest.raises(CuzkError, match=f"^{why}$") as told:
            client.plan(key_path=witnesses.key)
        assert not isinstance(told.value, DaemonError)  # the engine is there
        client.cancel(job.id)
        wait_for(lambda: client.identify().devices[0].capacity == 2 << 20)
        assert client.plan(key_path=witnesses.key).fits
