"""Blocking calls beside an event loop, of the kind that may never come back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_daemon_thread(call: Callable[..., T], *args: object) -> T:
    """``call(*args)`` in a thread of its own; its result, or what it raises.

    The thread does not keep the process from ending. Those of ``asyncio.to_thread`` do: the interpreter waits for them
    at its end, for ever when the call waits for a cluster or a database that is gone.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(set_it: Callable[[], object]) -> None:
        if not answer.done():  # Nobody waits any more.
            set_it()

    def work() -> None:
        try:
            result = call(*args)
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            failure = error
            tell(lambda: answer.set_exception(failure))
        else:
            tell(lambda: answer.set_result(result))

    def tell(set_it: Callable[[], object]) -> None:
        try:
            loop.call_soon_threadsafe(settle, set_it)
        except RuntimeError:
            return  # The loop has ended meanwhile.

    threading.Thread(target=work, name="raybroker-call", daemon=True).start()
    return await answer
