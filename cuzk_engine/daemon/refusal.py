"""Why a call is refused, with the gRPC status it becomes."""

from __future__ import annotations

from enum import StrEnum

from cuzk_engine.errors import CuzkError


class Reason(StrEnum):
    """Names of gRPC status codes."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"


class RefusedError(CuzkError):
    """A call that is refused, in one line."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
