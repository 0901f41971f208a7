"""Transactions by what they have used, and branches of distributed ones, on all hosts that the sessions of a connection
use in it.

    ACTIVE              suspended   SUSPENDED
    ACTIVE, SUSPENDED   ended       IDLE
    SUSPENDED           resumed     ACTIVE
    IDLE                joined      ACTIVE
    IDLE                prepared    PREPARED

It is ACTIVE when it is made. One that is IDLE is gone after a commit in one phase and after a rollback, and one that is
PREPARED after its decision.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from raybroker.client.connection.channel import Channel
from raybroker.client.destinations import Destination
from raybroker.model.errors import BrokerError
from raybroker.model.machine import Machine

if TYPE_CHECKING:
    from raybroker.model.naming.xid import Xid


class BranchState(StrEnum):
    ACTIVE = "ACTIVE"
    SUSPENDED = "SUSPENDED"
    IDLE = "IDLE"
    PREPARED = "PREPARED"


class BranchEvent(StrEnum):
    JOIN = "joined"
    RESUME = "resumed"
    SUSPEND = "suspended"
    END = "ended"
    PREPARE = "prepared"


_S, _E = BranchState, BranchEvent
BRANCH: Final = Machine(
    "the branch",
    [
        ((_S.ACTIVE,), _E.SUSPEND, _S.SUSPENDED),
        ((_S.ACTIVE, _S.SUSPENDED), _E.END, _S.IDLE),
        ((_S.SUSPENDED,), _E.RESUME, _S.ACTIVE),
        ((_S.IDLE,), _E.JOIN, _S.ACTIVE),
        ((_S.IDLE,), _E.PREPARE, _S.PREPARED),
    ],
)


class Transaction:
    """What one unit of work has used: its number on each connection, and a destination of each host."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.numbers: dict[Channel, int] = {}
        self.seats: dict[Channel, Destination] = {}
        """A destination on each host, by which the host is found again."""
        self.lost: str = ""
        """Why it cannot be committed any more."""
        self.refusal: BrokerError | None = None
        """The first of its sends that a host did not take."""
        self.complete = False
        """Everything of it has left for its hosts: what is sent from now on belongs to the next one, and waits."""

    @property
    def used(self) -> bool:
        """A host has something of it."""
        return bool(self.numbers)

    def number_on(self, channel: Channel, destination: Destination) -> int:
        """Its number on a connection; the first use there takes one."""
        number = self.numbers.get(channel)
        if number is None:
            number = self.numbers[channel] = channel.new_transaction()
            self.seats[channel] = destination
            self.joined(channel, number)
        return number

    def joined(self, channel: Channel, number: int) -> None:
        """Called at the first use of a connection, before anything of the transaction is written to it."""


class Branch(Transaction):
    """One branch: it is begun on each host before anything else of it goes there."""

    def __init__(self, xid: Xid) -> None:
        super().__init__(xid.pack())
        self.xid = xid
        self.state = BranchState.ACTIVE
        self.begun: list[tuple[Channel, int, asyncio.Future[Any]]] = []
        self.duplicate = ""
        """What a host said that has a branch of this XID already, of another connection."""
        self.heuristic: list[bool | None] = []
        """What its hosts said when they were told the decision, None where no administrator has."""
        self.hosts: dict[Channel, Destination] = {}
        """Where it is, with a destination there: the connections of all its parts."""

    def happens(self, event: BranchEvent) -> None:
        self.state = BRANCH.after(self.state, event)

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
        gone = self.state is not BranchState.PREPARED and any(channel.lost for channel in self.hosts)
        return "the connection to a host of it was lost" if gone else ""
