"""Pickled handles: connections, producers and messages that travel to another process, with a task of Ray for example.

A connection is its address: the copy connects on its first use, without a client id, since that belongs to one
connection at a time, and is closed when nothing refers to it any more.  A producer is its connection, destination and
options; the copy opens itself on its first use.  A message is its content: the copy cannot be acknowledged, that is for
whoever received it.  Sessions and consumers belong to one thread of one process and do not travel; make them there.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from raybroker.model.errors import BrokerError, IllegalStateError

if TYPE_CHECKING:  # What has no connection, as administration alone, does not import one.
    from raybroker.client.connection.connection import ConnectionCore
    from raybroker.client.options import ProducerOptions
    from raybroker.client.producer.members.unnamed import OwnProducer

Origin = tuple[Callable[[], "ConnectionCore"], bool]
"""What makes a connection to the same place, and whether it is started."""

_connecting: Final = threading.Lock()


class PicklableConnection:
    """A connection of either face; ``_core`` is made when it is first needed."""

    _core: ConnectionCore
    _sessions: list[Any]
    _origin: Origin | None = None
    """Of a copy that was not used yet."""

    @property
    def _is_made(self) -> bool:
        """There is a connection behind it; not so in a copy that was not used yet."""
        return "_core" in self.__dict__

    def _connected(self, name: str) -> Any:
        """Connect when ``_core`` is first asked for."""
        if name != "_core" or self._origin is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        with _connecting:
            if "_core" not in self.__dict__:
                reopen, started = self._origin
                core = reopen()
                self._core = core
                weakref.finalize(self, _close, core).atexit = False
                if started:
                    core.io.run(core.start())
        return self._core

    if not TYPE_CHECKING:  # A type checker knows what a connection has, and nothing else.
        __getattr__ = _connected

    def __reduce__(self) -> tuple[Any, ...]:
        found = self._origin
        if "_core" in self.__dict__:
            reopen = self._core.reopen
            found = (reopen, self._core.started) if reopen is not None else None
        if found is None:
            raise IllegalStateError(
                "a connection to an unnamed loopback cannot be pickled: its broker is in this process alone; connect"
                " there, with rb.connect() in a task of Ray, or name the broker with rb.loopback(broker=…)"
            )
        return _connection, (type(self), *found)


def _connection(kind: type[Any], reopen: Callable[[], ConnectionCore], started: bool) -> Any:
    made: Any = object.__new__(kind)
    made._sessions = []
    made._origin = (reopen, started)
    return made


def _close(core: ConnectionCore) -> None:
    """Nothing refers to a copy any more: close what it has opened, after what its producers sent is settled."""
    work = _closing(core)
    try:
        core.io.submit(work)
    except (RuntimeError, BrokerError):  # The process ends.
        work.close()


async def _closing(core: ConnectionCore) -> None:
    from raybroker.client.producer.producer import ProducerCore
    from raybroker.client.session import opening

    with contextlib.suppress(BrokerError):
        producers = [producer for producer in core.handles.producers if isinstance(producer, ProducerCore)]
        await asyncio.gather(*map(opening.let_go, producers))
        await core.close()


# ---- producers -------------------------------------------------------------------------------------------------------

_OF_OPEN: Final = frozenset(
    {"session", "_core", "_own", "_io", "_common", "_callbacks", "_timeout_s", "_made", "_reference_bytes"}
)
"""What a producer has once it is open: a copy opens itself when one of these is asked for."""
Made = tuple[Any, "ProducerOptions"]
"""Destination and options of a producer."""


class PicklableProducer:
    """A producer of either face; a copy in another process opens itself on its first use, in a session of its own."""

    session: Any
    _core: OwnProducer
    _made: Made
    _again: tuple[Any, Made]
    """Of a copy that was not used yet: its connection, and what it is made of."""

    def __reduce__(self) -> tuple[Any, ...]:
        if "_again" in self.__dict__:
            connection, made = self._again
            return _producer, (type(self), connection, *made)
        if self._core.transacted:
            raise IllegalStateError(
                "a producer of a transacted session cannot be pickled: its messages belong to the session's"
                " transactions; pickle the connection, and make a session there"
            )
        return _producer, (type(self), self.session.connection, *self._made)

    def _opened(self, name: str) -> Any:
        opening_ = self.__dict__.get("_opening")
        if opening_ is not None and name in _OF_OPEN:
            with opening_:
                if "_again" in self.__dict__:
                    self._open(*self._again)
                    del self._again
        return object.__getattribute__(self, name)

    if not TYPE_CHECKING:
        __getattr__ = _opened

    def _open(self, connection: Any, made: Made) -> None:
        from raybroker.client.session import opening

        destination, options = made
        session = connection._new_session()
        core = connection._core.io.run(opening.producer(session._core, destination, options))
        self.__init__(session, core, made)  # type: ignore[misc]  # a handle is made anew in its own place
        session._producers.add(self, partial(opening.let_go, core))

    def _travelled(self) -> None:
        """This is a copy."""


def _producer(kind: type[PicklableProducer], connection: Any, destination: Any, options: ProducerOptions) -> Any:
    made = object.__new__(kind)
    made._again = (connection, (destination, options))
    made.__dict__["_opening"] = threading.Lock()
    made._travelled()
    return made


# ---- what does not travel --------------------------------------------------------------------------------------------


class Unpicklable:
    """A handle that cannot be pickled."""

    def __reduce__(self) -> NoReturn:
        raise IllegalStateError(
            f"a {type(self).__name__.lower()} cannot be pickled: it belongs to one thread of this process; pickle its"
            " connection, or connect inside of the task with rb.connect(), and make it there"
        )
