"""A consumer of batches over several brokers: each broker forms its batches of what it stores.

While the application waits, every member has asked for a batch.  Once one has come, the others say that they want none
any more, so that what this consumer does not work on is for others; a batch that has left by then is the next one.
"""

from __future__ import annotations

from typing import NoReturn

from raybroker.client.consumer.batch_consumer import BatchConsumerCore, only_batches
from raybroker.client.consumer.consumer import ConsumerCore
from raybroker.client.consumer.consumer_options import ConsumerOptions
from raybroker.client.consumer.message import Message
from raybroker.client.consumer.multi_broker import MultiBrokerConsumer
from raybroker.client.destinations import Destination
from raybroker.client.session.session import SessionCore


class MultiBrokerBatches(MultiBrokerConsumer):
    """See the module. Its members share nothing but those who wait."""

    def __init__(self, session: SessionCore, destination: Destination, options: ConsumerOptions) -> None:
        super().__init__(session, destination, options)
        self._batching: list[BatchConsumerCore] = []
        """Members; the one whose batch was taken last is the last."""

    def take_batch(self) -> list[Message]:
        """The batch that is here, of one member; nothing while it is still to come."""
        for member in list(self._batching):
            found = member.take_batch()
            if found:
                with self._notifier.lock:
                    if member in self._batching:
                        self._batching.remove(member)
                        self._batching.append(member)
                return found
        if self._failure is not None:
            raise self._failure
        return []

    def take_messages(self, most: int) -> NoReturn:
        raise only_batches(self.name)

    def _take_one_of_all(self) -> NoReturn:
        raise only_batches(self.name)

    def require_messages(self) -> NoReturn:
        """Raises IllegalStateError: it gets batches, not messages."""
        raise only_batches(self.name)

    def batch_came(self, member: ConsumerCore) -> None:
        for other in list(self._batching):
            if other is not member:
                other.revoke_batch()

    # ---- as of its base ----------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        """Somebody waits: all members ask, unless one has something already."""
        here = any(member.has_batch for member in self._batching)
        for member in self._batching:
            if here:
                member.answer_deadline()
            else:
                member.poll()

    def _has_something(self) -> bool:
        if self.closed or self._failure is not None:
            return True
        return any(member.has_something() for member in self._batching)

    def _kind(self) -> type[ConsumerCore]:
        return BatchConsumerCore

    def _count_member(self, member: ConsumerCore) -> None:
        assert isinstance(member, BatchConsumerCore)
        self._batching.append(member)

    def _forget_member(self, member: ConsumerCore) -> None:
        with self._notifier.lock:
            self._batching = [one for one in self._batching if one is not member]
