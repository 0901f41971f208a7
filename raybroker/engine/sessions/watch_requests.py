"""Requests of a connection that starts or ends watching the consumers of a destination."""

from __future__ import annotations

from collections.abc import Mapping

from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.sessions.consumer_watch import HostConsumerWatch
from raybroker.engine.sessions.session import Arguments, Operation, Session


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
