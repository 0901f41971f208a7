"""What handles are when they travel to another process, with a task of Ray for example.

A connection is its address: the copy connects on its first use, without a client id, since that belongs to one
connection at a time, and is closed when nothing refers to it any more.  A producer is its connection, destination and
options.  A message is its content: the copy cannot be acknowledged, that is for whoever received it.  Sessions and
consumers belong to one thread of one process and do not travel; make them there.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from raybroker.client.consumer.message import Delivery, Message
from raybroker.client.session import opening
from raybroker.model.block import Block
from raybroker.model.bounds import MESSAGE_BYTES_MAX
from raybroker.model.errors import BrokerError, IllegalStateError

if TYPE_CHECKING:
    from raybroker.client.connection.connection import ConnectionCore


class Address(NamedTuple):
    """Where a connection leads, and how: ``loopback`` is the name of one of this process, else "".

    ``open(address)`` makes a connection there; it is a function of a module, so that it travels by its name.
    """

    open: Callable[[Address], ConnectionCore]
    cluster: str = ""
    broker: str | None = None
    attributes: Mapping[str, object] = {}
    loopback: str = ""


_connecting: Final = threading.Lock()


class PicklableConnection:
    """A connection of either face; ``_core`` is made when it is first needed."""

    _core: ConnectionCore
    _sessions: list[Any]
    _address: tuple[Address, bool] | None = None
    """Of a copy that was not used yet: where, and whether it is started."""

    def __getattr__(self, name: str) -> Any:
        if name != "_core" or self._address is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        with _connecting:
            if "_core" not in self.__dict__:
                address, started = self._address
                core = address.open(address)
                self._core = core
                weakref.finalize(self, _close, core).atexit = False
                if started:
                    core.io.run(core.start())
        return self._core

    def __reduce__(self) -> tuple[Any, ...]:
        found = self._address
        if "_core" in self.__dict__:
            address = self._core.address
            found = (address, self._core.started) if address is not None else None
        if found is None:
            raise IllegalStateError(
                "a connection to an unnamed loopback cannot be pickled: its broker is in this process alone; connect"
                " there, with rb.connect() in a task of Ray, or name the broker with rb.loopback(broker=…)"
            )
        return _connection, (type(self), *found)


def _connection(kind: type[Any], address: Address, started: bool) -> Any:
    made: Any = object.__new__(kind)
    made._sessions = []
    made._address = (address, started)
    return made


def _close(core: ConnectionCore) -> None:
    """Nothing refers to a copy any more: close what it has opened, after what its producers sent is settled."""
    work = _closing(core)
    try:
        core.io.submit(work)
    except (RuntimeError, BrokerError):  # The process ends.
        work.close()


async def _closing(core: ConnectionCore) -> None:
    with contextlib.suppress(BrokerError):
        await asyncio.gather(*map(opening.let_go, core.producers))
        await core.close()


# ---- producers -------------------------------------------------------------------------------------------------------

Made = tuple[Any, dict[str, Any]]
"""Destination and options of a producer."""


def reduce_producer(producer: Any, made: Made) -> tuple[Any, ...]:
    """For ``__reduce__`` of a blocking producer."""
    if producer._core.transacted:
        raise IllegalStateError(
            "a producer of a transacted session cannot be pickled: its messages belong to the session's transactions;"
            " pickle the connection, and make a session there"
        )
    return producer_again, (type(producer), producer.session.connection, *made)


def producer_again(kind: type[Any], connection: Any, destination: Any, options: dict[str, Any]) -> Any:
    made: Any = object.__new__(kind)
    made._again = (connection, (destination, options))
    return made


# ---- messages --------------------------------------------------------------------------------------------------------


class _Nobody:
    """The session of a message that was not received here."""

    message_bytes_max = MESSAGE_BYTES_MAX

    @property
    def connection(self) -> _Nobody:
        return self

    def __getattr__(self, name: str) -> Any:
        raise IllegalStateError(
            f"{name}() of a copy of a message: it is settled and answered where it was received; this is its content"
        )


class _Origin:
    """The consumer of a message that was not received here."""

    def __init__(self, name: str, unpickles: bool) -> None:
        self.name = name
        self.unpickles = unpickles
        self.session: Any = _Nobody()


def reduce_message(message: Message) -> tuple[Any, ...]:
    """For ``__reduce__``: the message alone, without the others of its block."""
    delivery = message._delivery
    data = b"".join(delivery.block.pick(1 << message._index))
    consumer = delivery.consumer
    return _message, (data, consumer.name, consumer.unpickles, delivery.attempt, message.tag)


def _message(data: bytes, name: str, unpickles: bool, attempt: int, tag: int) -> Message:
    origin: Any = _Origin(name, unpickles)
    return Message(Delivery(Block(data), origin, 0, tag, attempt), 0)


# ---- what does not travel --------------------------------------------------------------------------------------------


class Unpicklable:
    """A handle that cannot be pickled."""

    def __reduce__(self) -> NoReturn:
        raise IllegalStateError(
            f"a {type(self).__name__.lower()} cannot be pickled: it belongs to one thread of this process; pickle its"
            " connection, or connect inside of the task with rb.connect(), and make it there"
        )
