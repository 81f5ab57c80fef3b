"""Errors of the driver, told apart."""

from __future__ import annotations

import pytest

from cuzk_engine.devices.cuda import faults
from cuzk_engine.errors import DeviceFaultError, DeviceLostError, OutOfDeviceMemoryError


class DriverError(RuntimeError):
    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def test_out_of_memory_has_the_numbers() -> None:
    error = faults.translate("cuda:0", DriverError("cudaErrorMemoryAllocation: out of memory", 2), "msm", 100, 30, 200)
    assert isinstance(error, OutOfDeviceMemoryError)
    assert (error.requested, error.free, error.capacity, error.purpose) == (100, 30, 200, "msm")


@pytest.mark.parametrize("code", [700, 719, 214])
def test_a_lost_device(code: int) -> None:
    error = faults.translate("cuda:1", DriverError("cudaErrorX: an illegal memory access", code))
    assert isinstance(error, DeviceLostError)
    assert (error.device, error.name, error.code) == ("cuda:1", "cudaErrorX", code)
    assert str(error).startswith(f"device cuda:1: lost after cudaErrorX ({code}), an illegal memory access")


def test_another_failure() -> None:
    error = faults.translate("cuda:0", DriverError("cudaErrorInvalidValue: invalid argument", 1), requested=5000)
    assert type(error) is DeviceFaultError
    assert str(error) == "device cuda:0: cudaErrorInvalidValue (1): invalid argument; 5,000 bytes were asked for"


def test_what_is_none_of_the_drivers() -> None:
    assert faults.translate("cuda:0", ValueError("no")) is None
