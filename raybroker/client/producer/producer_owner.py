"""The owner of a producer: the handle that a producer is one of several attachments of."""

from __future__ import annotations

from typing import Generic, TypeVar

from raybroker.model.errors import BrokerError

Member = TypeVar("Member")
"""The producer of one attachment."""


class ProducerOwner(Generic[Member]):
    """The owner of a producer that is alone; handles with several attachments derive from it."""

    def member_failed(self, member: Member) -> None:
        """It cannot go on, because of ``member.failure``."""

    def member_turned(self) -> None:
        """One was attached, lost or paused, or is so no longer."""

    def error_of(self, member: Member, error: BrokerError) -> BrokerError:
        """What those who wait for a message are told when a member fails with ``error``."""
        return error
