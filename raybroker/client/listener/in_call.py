"""The call of a listener that runs here: closing from inside of one may be forbidden (AllowCloseInOnMessage)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

from raybroker.model.errors import IllegalStateError
from raybroker.model.settings.settings import ConfigView

ALLOWED: Final = "AllowCloseInOnMessage"


class OfConnection(Protocol):
    """A session, as far as the connection is wanted that it belongs to."""

    @property
    def connection(self) -> ListenerAttributes: ...


class ListenerAttributes(Protocol):
    """A connection, as far as its attributes are wanted."""

    @property
    def attributes(self) -> ConfigView: ...


class _Call:
    """A call of a listener of a session. ``runs``: a task that the listener has left behind is not in it any more."""

    def __init__(self, session: OfConnection) -> None:
        self.session = session
        self.runs = True


_call: ContextVar[_Call | None] = ContextVar("raybroker_listener_call", default=None)


@contextmanager
def in_call(session: OfConnection) -> Iterator[None]:
    """A listener of the session is called."""
    call = _Call(session)
    before = _call.set(call)
    try:
        yield
    finally:
        call.runs = False
        _call.reset(before)


def is_in_call(session: OfConnection) -> bool:
    """What runs here is a call of a listener of the session."""
    call = _call.get()
    return call is not None and call.runs and call.session is session


def require_may_end(what: str, connection: ListenerAttributes, session: OfConnection | None = None) -> None:
    """Raises IllegalStateError when a listener of the session, or without one of the connection, calls ``what``, and
    AllowCloseInOnMessage is false. Other sessions may be closed."""
    if connection.attributes[ALLOWED]:
        return
    call = _call.get()
    if call is None or not call.runs:
        return
    if call.session is session or (session is None and call.session.connection is connection):
        raise IllegalStateError(f"a listener called {what} of its own, which {ALLOWED}=false forbids; end it elsewhere")
