"""Explanations of what waits on a host, as its broker asks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from raybroker.model.errors import ConfigError
from raybroker.model.listing import Row
from raybroker.model.naming.names import check_destination_type

if TYPE_CHECKING:
    from raybroker.engine.destinations.explaining import Explaining


class WhyPort:
    """Answers are rows, see engine.destinations.explaining; InvalidDestinationError is raised for what is not there."""

    def __init__(self, explaining: Callable[[], Explaining]) -> None:
        self._explaining = explaining

    async def message(self, type: str, name: str, id: str) -> list[Row]:
        return self._explaining().message(check_destination_type(type), name, id)

    async def destination(self, type: str, name: str) -> list[Row]:
        return self._explaining().destination(check_destination_type(type), name)

    async def consumer(self, id: int | str) -> list[Row]:
        return self._explaining().consumer(_number("consumer", id))

    async def producer(self, id: str, type: str, name: str | None) -> list[Row]:
        return self._explaining().producer(id, check_destination_type(type), name)

    async def subscription(self, topic: str | None, client_id: str | None, name: str) -> list[Row]:
        return self._explaining().subscription(topic, client_id, name)

    async def transaction(self, id: int | str) -> list[Row]:
        return self._explaining().transaction(_number("transaction", id))


def _number(what: str, id: int | str) -> int:
    text = str(id).strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        raise ConfigError(f"{what} {text[:80]!r} is no number; list_{what}s shows those there are")
    return int(text)
