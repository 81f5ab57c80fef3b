"""Turns what a handler raises into a gRPC status with one line of text; a fault of ours never reaches a client as a
traceback.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn

import grpc
from grpc import aio

from cuzk_engine import paths
from cuzk_engine.client.types import REFUSED
from cuzk_engine.daemon.refusal import RefusedError
from cuzk_engine.errors import CuzkError

log = logging.getLogger("cuzk")


def unary(handler: Callable[[Any, Any, Any], Awaitable[Any]]) -> Callable[[Any, Any, Any], Awaitable[Any]]:
    """For a method ``(self, request, context)`` that returns one message."""

    async def answer(self: Any, request: Any, context: Any) -> Any:
        try:
            return await handler(self, request, context)
        except Exception as error:
            await _abort(context, error)

    return answer


def streaming(handler: Callable[[Any, Any, Any], AsyncIterator[Any]]) -> Callable[[Any, Any, Any], AsyncIterator[Any]]:
    """For a method ``(self, request, context)`` that yields messages."""

    async def answer(self: Any, request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            messages = handler(self, request, context)
            async with contextlib.aclosing(messages) as closing:  # type: ignore[type-var]
                async for message in closing:
                    yield message
        except Exception as error:
            await _abort(context, error)

    return answer


async def _abort(context: Any, error: Exception) -> NoReturn:
    if isinstance(error, aio.AbortError | asyncio.CancelledError):
        raise error
    text = str(error).encode(errors="backslashreplace").decode()  # a name in it may be no UTF-8
    if isinstance(error, RefusedError):
        await context.abort(grpc.StatusCode[error.reason], text, (REFUSED,))
    if isinstance(error, CuzkError):
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
    if isinstance(error, sqlite3.Error):
        await context.abort(
            grpc.StatusCode.INTERNAL, f"the job store {paths.data_dir() / 'jobs.sqlite'} cannot be used: {error}"
        )
    log.error("a call failed", exc_info=error)
    text = " ".join(text.split())
    await context.abort(grpc.StatusCode.INTERNAL, f"internal fault: {type(error).__name__}: {text}")
    raise AssertionError("abort raises")
