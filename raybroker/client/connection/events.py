"""The events of a connection: what becomes of its links, refused messages, and whether destinations have consumers.

A connection has a link to each host that serves something it uses.  Each lost link is told once; how it goes on is told
by one of the handles that were on it, so that there is one "reconnected" a link and one "reconnect_failed" an attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from raybroker.client.connection.drain_notice import DrainNotice
from raybroker.client.destinations import Destination
from raybroker.client.io.callbacks import Callbacks
from raybroker.client.io.io_thread import IoThread
from raybroker.model.errors import BrokerError
from raybroker.system.clock import SystemClock

CLOSING: Final = "closing"
CLOSED: Final = "closed"
RECONNECTED: Final = "reconnected"
RECONNECT_FAILED: Final = "reconnect_failed"
UNANSWERED: Final = "unanswered"
REFUSED: Final = "refused"
REFUSALS_APART_S: Final = 1.0
"""Refusals of messages that nobody waits for are reported so often at most, each time with how many there were."""
log = logging.getLogger("raybroker.client")


@dataclass(frozen=True, slots=True)
class ConnectionEvent:
    """Something that happened to a connection.

    kind     "closing": a host has said that it is about to end the link, and why
             "closed": the link to a host is gone
             "unanswered": a host has not answered a ping within imqPingAckTimeout
             "reconnect_failed": an attempt to come back has failed; the next one follows, unless it was the last
             "reconnected": the handles are back, at ``address``
             "refused": messages that nobody waits for (persistent=False) were not taken; ``text`` says how many and why
             "draining": the Ray node of this program is drained, and its consumers get nothing more; ``text`` says when
             it goes, ``Message.draining`` too; "staying": that is over
    address  the host: its name, and "@", IP address and port where it has them
    code     why, as the code of an error of ``raybroker.errors``; "" for "reconnected"
    text     the same in words
    attempt  number of a failed attempt, from 1
    """

    kind: str
    address: str
    code: str = ""
    text: str = ""
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerEvent:
    """A destination has consumers, or has none any more (or does not exist)."""

    destination: Destination
    ready: bool

    @property
    def kind(self) -> str:
        """ "ready" or "not_ready"."""
        return "ready" if self.ready else "not_ready"


class Events:
    """The place where the events of one connection go; on the IO loop."""

    def __init__(self, io: IoThread) -> None:
        self._io = io
        self.callbacks = Callbacks("events")
        """Where handlers of the application are called."""
        self._on_event: Callable[[ConnectionEvent], object] | None = None
        self._on_exception: Callable[[BrokerError], object] | None = None
        self._refusals: dict[tuple[str, str], tuple[int, BrokerError]] = {}
        self._telling = False
        self.drain = DrainNotice()

    def on_event(self, handler: Callable[[ConnectionEvent], object] | None) -> None:
        """Call ``handler`` from now on with each event; None: nobody."""
        self._on_event = handler

    def on_exception(self, handler: Callable[[BrokerError], object] | None) -> None:
        """Call ``handler`` from now on with each error that ends a handle; None: nobody."""
        self._on_exception = handler

    def failed(self, error: BrokerError) -> None:
        """A handle or a listener has failed."""
        if self._on_exception is not None:
            self._on_exception(error)

    def post_failure(self, error: BrokerError) -> None:
        """:meth:`failed` from any thread."""
        self._io.post(self.failed, error)

    def messages_refused(self, address: str, destination: str, count: int, error: BrokerError) -> None:
        """Messages were refused that nobody waits for: one line in the log, and one event, for many of them."""
        before, _ = self._refusals.get((address, destination), (0, error))
        self._refusals[address, destination] = before + count, error
        if not self._telling:
            self._telling = True
            self._tell_refusals()

    def _tell_refusals(self) -> None:
        refusals, self._refusals = self._refusals, {}
        for (address, destination), (count, error) in refusals.items():
            text = f"{destination} did not take {count} messages that nobody waited for: {error}"
            log.warning("%s", text)
            self.emit(REFUSED, address, type(error)(text))
        self._telling = bool(refusals)
        if refusals:
            self._io.loop.call_later(REFUSALS_APART_S, self._tell_refusals)

    def drain_told(self, consumer: int, address: str, data: Mapping[str, Any]) -> None:
        """A host has told a consumer that its node is drained, or is not any more."""
        leaving, left_ms = bool(data.get("leaving")), data.get("left_ms")
        told = self.drain.told(consumer, leaving=leaving, left_ms=left_ms, now_s=SystemClock.monotonic_ns() / 1e9)
        if told is not None:
            log.warning("%s", told.text)
            self._post(ConnectionEvent(told.kind, address, text=told.text))

    def emit(self, kind: str, address: str, error: BrokerError | None = None, attempt: int = 0) -> None:
        """The handler is called in a later turn of the loop, in order; what it raises harms nobody else."""
        code, text = (error.code, str(error)) if error is not None else ("", "")
        self._post(ConnectionEvent(kind, address, code, text, attempt))

    def _post(self, event: ConnectionEvent) -> None:
        if self._on_event is not None:
            self._io.post(self._on_event, event)


class Outage:
    """A lost link: one of the handles that were on it reports how reconnecting proceeds, and another when that one
    ends."""

    def __init__(self, events: Events, address: str) -> None:
        self._events = events
        self._address = address
        self._leader: object = None
        self._attempts = 0
        self._over = False

    def failed(self, endpoint: object, error: BrokerError) -> None:
        """An attempt of the handle to come back has failed."""
        if self._leads(endpoint):
            self._attempts += 1
            self._events.emit(RECONNECT_FAILED, self._address, error, self._attempts)

    def over(self, endpoint: object, address: str) -> None:
        """The handle is back."""
        if self._leads(endpoint):
            self._over = True
            self._events.emit(RECONNECTED, address)

    def left(self, endpoint: object) -> None:
        """The handle tries no more."""
        if self._leader is endpoint:
            self._leader = None

    def _leads(self, endpoint: object) -> bool:
        if self._leader is None:
            self._leader = endpoint
        return not self._over and self._leader is endpoint
