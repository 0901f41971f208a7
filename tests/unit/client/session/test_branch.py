"""A branch of a distributed transaction: begun on each host, and what makes it fit for a rollback only."""

from __future__ import annotations

import asyncio
from typing import Any

from raybroker.client.destinations import Queue
from raybroker.client.session.branch import Branch, BranchState
from raybroker.model.errors import ResourceAllocationError
from raybroker.model.naming.xid import Xid
from tests.unit.client.fakes import run

XID = Xid(1, b"global", b"branch")


class Host:
    """A channel that remembers its requests."""

    def __init__(self, *, lost: bool = False) -> None:
        self.lost = lost
        self.asked: list[Any] = []

    def request(self, op: str, args: dict[str, Any]) -> asyncio.Future[Any]:
        self.asked.append((op, args))
        return asyncio.get_running_loop().create_future()


def channel(*, lost: bool = False) -> Any:
    return Host(lost=lost)


def test_it_is_begun_on_each_host_by_its_key() -> None:
    async def work() -> None:
        branch, host = Branch(XID), channel()
        branch.seats[host] = Queue("q")
        branch.joined(host, 5)
        assert host.asked == [("txn_begin", {"txn": 5, "key": XID.pack()})]
        assert ([row[:2] for row in branch.begun], branch.hosts) == ([(host, 5)], {host: Queue("q")})
        assert (branch.state, branch.doomed) == (BranchState.ACTIVE, "")

    run(work)


def test_a_lost_host_dooms_it_until_it_is_prepared() -> None:
    branch = Branch(XID)
    branch.hosts[channel(lost=True)] = Queue("q")
    assert branch.doomed == "the connection to a host of it was lost"
    branch.state = BranchState.PREPARED
    assert branch.doomed == ""


def test_what_happened_first_is_the_reason() -> None:
    branch = Branch(XID)
    branch.refusal = ResourceAllocationError("full")
    assert branch.doomed == "full"
    branch.duplicate = "there is one already"
    assert branch.doomed == "there is one already"
    branch.lost = "its session ended"
    assert branch.doomed == "its session ended"
