"""Watches of destinations, which report whether a destination has consumers.

A watch is an attachment that sends and takes nothing, so that it ends with its destination as all others do.  What is
told is only whether there is a consumer at all, each time that this changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raybroker.core.destination import Destination
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.path.observers import Observers
from raybroker.engine.sessions.attachments import Attachment, Attachments, Outbox
from raybroker.engine.sessions.session import Arguments, Operation, Session
from raybroker.engine.sessions.sessions import ClientSession
from raybroker.model.errors import ProtocolError

WATCHES_MAX: Final = 4_096
"""Destinations that one connection watches on one host."""


class _Watched:
    """One destination and those who watch it. ``ready``: it had consumers when they were told last."""

    __slots__ = ("attachments", "ready")

    def __init__(self, *, ready: bool) -> None:
        self.ready = ready
        self.attachments: dict[int, Attachment] = {}


class HostConsumerWatch:
    """All watches of a host."""

    def __init__(self, attachments: Attachments, observers: Observers) -> None:
        self._attachments = attachments
        self._observers = observers
        self._watched: dict[Destination, _Watched] = {}
        self._by_session: dict[ClientSession, dict[int, Attachment]] = {}

    def after_command(self, destination: Destination) -> None:
        """A command of the destination was carried out: tell those who watch when the first consumer came, or the last
        one went."""
        watched = self._watched.get(destination)
        if watched is None or watched.ready == bool(destination.queue_of):
            return
        watched.ready = not watched.ready
        for attachment in watched.attachments.values():
            if attachment.number in self._attachments.by_number:
                attachment.peer.event("consumers", {"handle": attachment.handle, "ready": watched.ready})

    def add(self, session: ClientSession, outbox: Outbox, handle: int, destination: Destination) -> bool:
        """Watch for a session; whether there is a consumer now."""
        own = self._by_session.setdefault(session, {})
        if handle in own or len(own) >= WATCHES_MAX:
            raise ProtocolError(f"handle {handle} is not free, or {WATCHES_MAX} destinations are watched already")
        attachment = own[handle] = self._attachments.attach(destination, session.peer, handle, outbox)
        watched = self._watched.get(destination)
        if watched is None:
            watched = self._watched[destination] = _Watched(ready=bool(destination.queue_of))
            self._observers.add(destination.number, self.after_command)
        watched.attachments[attachment.number] = attachment
        return watched.ready

    def remove(self, session: ClientSession, handle: int) -> None:
        """End one watch; one that has ended already is no error."""
        attachment = self._by_session.get(session, {}).pop(handle, None)
        if attachment is not None:
            self._end_watch(attachment)

    def left(self, session: ClientSession) -> None:
        """The session is over."""
        for attachment in self._by_session.pop(session, {}).values():
            self._end_watch(attachment)

    def _end_watch(self, attachment: Attachment) -> None:
        self._attachments.by_number.pop(attachment.number, None)
        watched = self._watched[attachment.destination]
        del watched.attachments[attachment.number]
        if not watched.attachments:
            del self._watched[attachment.destination]
            self._observers.remove(attachment.destination.number, self.after_command)


class WatchRequests:
    """Requests about watches."""

    def __init__(self, registry: DestinationRegistry, watch: HostConsumerWatch) -> None:
        self._registry = registry
        self._watch = watch

    def operations(self) -> Mapping[str, Operation]:
        return {"watch_consumers": self._add, "unwatch_consumers": self._remove}

    def _add(self, session: Session, request: int, args: Arguments) -> None:
        handle = session.new_handle(args)
        destination = self._registry.find(str(args.get("type", "queue")), args["name"])
        session.peer.reply(request, {"ready": self._watch.add(session.client, session.outbox, handle, destination)})

    def _remove(self, session: Session, request: int, args: Arguments) -> None:
        self._watch.remove(session.client, int(args["handle"]))
        session.peer.reply(request, None)
