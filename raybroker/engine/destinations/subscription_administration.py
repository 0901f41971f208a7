"""Durable and shared subscriptions as administrators make, purge and end them."""

from __future__ import annotations

from raybroker.core import command as cmd
from raybroker.core.subscription import Subscription
from raybroker.core.topic import Topic
from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.path.executor import Done, Executor
from raybroker.model.errors import InvalidDestinationError


class SubscriptionAdministration:
    """Each verb calls ``done`` when the change is durable, and raises InvalidDestinationError without that topic."""

    def __init__(self, executor: Executor, registry: DestinationRegistry) -> None:
        self._executor = executor
        self._registry = registry

    def subscribe(self, topic: str, wanted: Subscription, done: Done) -> None:
        """Make a durable subscription unless it is there; raises IllegalStateError as core.command.Subscribe."""
        self._perform(topic, cmd.Subscribe(wanted), done)

    def unsubscribe(self, topic: str, client_id: str, name: str, done: Done) -> None:
        """End a named subscription; raises IllegalStateError while it is in use."""
        self._perform(topic, cmd.Unsubscribe(client_id, name), done)

    def purge(self, topic: str, client_id: str, name: str, done: Done) -> None:
        """Discard what waits in a subscription: in the durable one of that name, or else the shared one."""
        destination, queue = self._registry.named("topic", topic), None
        if isinstance(destination, Topic):
            queue = destination.find(client_id, name) or destination.find(client_id, name, durable=False)
        if queue is None:
            raise InvalidDestinationError(f"topic {topic} has no subscription {name!r} of client {client_id!r}")
        self._perform(topic, cmd.Purge(queue.number), done)

    def _perform(self, topic: str, command: cmd.Command, done: Done) -> None:
        self._executor.require_running()
        self._executor.perform(self._registry.named("topic", topic), command)
        self._executor.append([], done)
