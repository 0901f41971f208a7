"""Durable changes: a method that is declared so returns when what it has changed is on disk."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from raybroker.model.errors import BrokerError

Done = Callable[[], None]


class Changes:
    """Changes that somebody waits for; when the store dies all of them fail."""

    def __init__(self) -> None:
        self._awaited: set[asyncio.Future[None]] = set()

    @asynccontextmanager
    async def change(self) -> AsyncIterator[Done]:
        """Make one change within the block, which gives the engine what to call once the change is durable; the block
        ends then."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited.add(future)
        try:
            yield lambda: None if future.done() else future.set_result(None)
            await future
        finally:
            self._awaited.discard(future)
            if future.done() and not future.cancelled():
                future.exception()  # It is nobody's any more where the block itself has raised.

    def fail(self, error: BrokerError) -> None:
        for future in self._awaited:
            if not future.done():
                future.set_exception(error)


class Changing(Protocol):
    """A role of a host with durable methods."""

    @property
    def changes(self) -> Changes: ...


S = TypeVar("S", bound=Changing)
P = ParamSpec("P")
T = TypeVar("T")


def durable(
    method: Callable[Concatenate[S, Done, P], Awaitable[T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Declare a method whose callers wait until its change is durable. Its first argument, which callers do not give,
    is what it has the engine call then."""

    @wraps(method)
    async def waits(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async with self.changes.change() as done:
            answer = await method(self, done, *args, **kwargs)
        return answer  # noqa: RET504 - after the change has become durable

    signature = inspect.signature(method)
    given = [parameter for parameter in signature.parameters.values() if parameter.name != "done"]
    waits.__signature__ = signature.replace(parameters=given)  # type: ignore[attr-defined]  # read by inspect
    return waits
