"""Sends of many callers that are stored together: what comes while a batch is on its way is the next batch."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from raybroker.client.aio.handles import Producer

TOGETHER_MAX: Final = 1_000
"""Messages of one batch."""


class SendTogether:
    """A producer for the coroutines of one event loop."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._waiting: list[tuple[asyncio.Future[None], dict[str, Any]]] = []
        self._batches: asyncio.Task[None] | None = None

    async def send(self, body: Any, **options: Any) -> None:
        """Send one message as ``Producer.send`` does, with its options: returns when it is stored, raises what keeps it
        from that."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((done, {"body": body, **options}))
        if self._batches is None:
            self._batches = asyncio.create_task(self._send_batches())
        await done

    async def _send_batches(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:TOGETHER_MAX], self._waiting[TOGETHER_MAX:]
            found = await asyncio.gather(*[self._producer.send(**one) for _, one in batch], return_exceptions=True)
            for (done, _), answer in zip(batch, found, strict=True):
                if done.done():
                    continue  # Whoever waited was cancelled.
                elif isinstance(answer, BaseException):
                    done.set_exception(answer)
                else:
                    done.set_result(None)
        self._batches = None
