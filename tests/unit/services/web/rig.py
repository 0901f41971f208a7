"""A broker for the application alone: a loopback, to which anybody with the right password connects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from raybroker import aio
from raybroker.errors import BrokerError, SecurityError


class Broker:
    """``connect`` is what the application takes; remembers who has connected, and may be made to fail."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.passwords = {"ann": "secret", "bob": "secret"}
        self.tokens: dict[str, str] = {}
        self.failure: BrokerError | None = None
        self.gate: asyncio.Event | None = None
        self.logins: list[tuple[str, str]] = []
        self.open: dict[str, Any] = {}
        self.ended: dict[str, Callable[[BrokerError], object]] = {}

    async def connect(
        self,
        user: str,
        password: str,
        *,
        token: str | None = None,
        peer: str,
        client: str,
        ended: Callable[[BrokerError], object],
    ) -> Any:
        user = user or self.tokens.get(str(token), "")
        password = password or self.passwords.get(user, "")
        self.logins.append((user, peer))
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        if self.passwords.get(user) != password:
            raise SecurityError("wrong user or password")
        made = self.open[user] = await aio.loopback(broker=self.name)
        self.ended[user] = ended
        return made


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(4000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come")
