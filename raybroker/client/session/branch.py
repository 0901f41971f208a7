"""A branch of a distributed transaction, on all hosts that the sessions of one connection use in it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from raybroker.client.connection.channel import Channel
from raybroker.client.destinations import Destination
from raybroker.client.session.transaction import Transaction

if TYPE_CHECKING:
    from raybroker.model.naming.xid import Xid

ACTIVE: Final = "ACTIVE"
SUSPENDED: Final = "SUSPENDED"
IDLE: Final = "IDLE"
PREPARED: Final = "PREPARED"


class Branch(Transaction):
    """One branch: it is begun on each host before anything else of it goes there."""

    def __init__(self, xid: Xid) -> None:
        super().__init__(xid.pack())
        self.xid = xid
        self.state = ACTIVE
        self.begun: list[tuple[Channel, int, asyncio.Future[Any]]] = []
        self.duplicate = ""
        """What a host said that has a branch of this XID already, of another connection."""
        self.heuristic: list[bool | None] = []
        """What its hosts said when they were told the decision, None where no administrator has."""
        self.hosts: dict[Channel, Destination] = {}
        """Where it is, with a destination there: the connections of all its parts."""

    def joined(self, channel: Channel, number: int) -> None:
        self.hosts[channel] = self.seats[channel]
        begun = channel.request("txn_begin", {"txn": number, "key": self.key})
        begun.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.begun.append((channel, number, begun))

    @property
    def used(self) -> bool:
        return bool(self.hosts)

    @property
    def doomed(self) -> str:
        """Why it can only be rolled back; "" when it can be committed."""
        if self.lost:
            return self.lost
        if self.duplicate:
            return self.duplicate
        if self.refusal is not None:
            return str(self.refusal)
        gone = self.state != PREPARED and any(channel.lost for channel in self.hosts)
        return "the connection to a host of it was lost" if gone else ""
