"""Who wants to know whether a destination has consumers, and what else a client is told of one.

A watch is an attachment that sends and takes nothing, so that it ends with its destination as all others do.  What is
told is only whether there is a consumer at all, each time that this changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from raybroker.core.admission.producer_flow import producer_credit
from raybroker.core.destination import Destination
from raybroker.engine.attachments import Attachment
from raybroker.model.errors import ProtocolError
from raybroker.model.settings import DestinationAttributes

if TYPE_CHECKING:
    from raybroker.engine.host import Host
    from raybroker.engine.session import Session

WATCHES_MAX: Final = 4_096
"""Destinations that one connection watches on one host."""


class _Watched:
    """One destination and those who watch it. ``ready``: it had consumers when they were told last."""

    __slots__ = ("attachments", "ready")

    def __init__(self, *, ready: bool) -> None:
        self.ready = ready
        self.attachments: dict[int, Attachment] = {}


class Watching:
    """All watches of a host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._watched: dict[Destination, _Watched] = {}
        self._by_session: dict[Session, dict[int, Attachment]] = {}

    def look(self, home: Destination) -> None:
        """A command of the destination was carried out: tell those who watch when the first consumer came, or the last
        one went."""
        watched = self._watched.get(home)
        if watched is None or watched.ready == bool(home.queue_of):
            return
        watched.ready = not watched.ready
        for attachment in watched.attachments.values():
            if attachment.number in self._host.attachments:
                attachment.peer.event("consumers", {"handle": attachment.handle, "ready": watched.ready})

    def add(self, session: Session, handle: int, home: Destination) -> bool:
        """Watch for a session; whether there is a consumer now."""
        own = self._by_session.setdefault(session, {})
        if handle in own or len(own) >= WATCHES_MAX:
            raise ProtocolError(f"handle {handle} is not free, or {WATCHES_MAX} destinations are watched already")
        attachment = own[handle] = self._host.attach(home, session.peer, handle, session.outbox)
        watched = self._watched.get(home)
        if watched is None:
            watched = self._watched[home] = _Watched(ready=bool(home.queue_of))
        watched.attachments[attachment.number] = attachment
        return watched.ready

    def remove(self, session: Session, handle: int) -> None:
        """End one watch; one that has ended already is no error."""
        attachment = self._by_session.get(session, {}).pop(handle, None)
        if attachment is not None:
            self._end(attachment)

    def left(self, session: Session) -> None:
        """The session is over."""
        for attachment in self._by_session.pop(session, {}).values():
            self._end(attachment)

    def _end(self, attachment: Attachment) -> None:
        self._host.attachments.pop(attachment.number, None)
        watched = self._watched[attachment.home]
        del watched.attachments[attachment.number]
        if not watched.attachments:
            del self._watched[attachment.home]


def _watch(session: Session, request: int, args: dict[str, Any]) -> None:
    handle = session.new_handle(args)
    home = session.host.find(str(args.get("type", "queue")), args["name"])
    session.peer.reply(request, {"ready": session.host.watching.add(session, handle, home)})


def _unwatch(session: Session, request: int, args: dict[str, Any]) -> None:
    session.host.watching.remove(session, int(args["handle"]))
    session.peer.reply(request, None)


OPS: Final[dict[str, Callable[[Any, int, dict[str, Any]], None]]] = {
    "watch_consumers": _watch,
    "unwatch_consumers": _unwatch,
}


def checks_of(attributes: DestinationAttributes) -> dict[str, Any]:
    """What producers are told of their destination, for the answer to one that was opened: what to check before they
    send, how much they may have under way, and whether it looks at deduplication ids."""
    found: dict[str, Any] = {"credit": producer_credit(attributes)} if producer_credit(attributes) else {}
    if attributes.duplicateWindowMs > 0:
        found["dedup"] = True
    if not attributes.validateXMLSchemaEnabled:
        return found
    schemas, reload = attributes.XMLSchemaURIList.split(), attributes.reloadXMLSchemaOnFailure
    return found | {"xml": {"schemas": schemas, "reload": reload}}
