"""A broker in this process whose log has three copies: its store is where one of them leads.

What applications see must not depend on copies, so that it is a face of the contract tests; and what a crash of the
store shows over files is here the loss of the leader: another copy leads, and the next broker has that one's log.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from raybroker.client.connection.connection import ConnectionCore, identified
from raybroker.client.io.io_thread import IoThread
from raybroker.client.loopback import LoopbackDirectory
from raybroker.config import Config
from raybroker.copies.replicated_store import ReplicatedStore
from raybroker.engine.ports import Store
from raybroker.hosting.host_service import HostStorage
from raybroker.replication.leading import LEASE_WAIT_MS
from raybroker.replication.replica import HEARD_MS
from raybroker.system.clock import SystemClock
from tests.contracts.handles import LoopbackBroker
from tests.unit.copies.rig import Group, until


class CopiedDirectory(LoopbackDirectory):
    """``group``: the copies; ``store``: the folder of the broker itself."""

    def __init__(self, config: Config, store: Path, io: IoThread, group: Group) -> None:
        super().__init__(config, store, io)
        self._group = group

    async def _open_storage(self, clock: SystemClock) -> HostStorage:
        leader = self._group.led()
        self._group.pass_time(LEASE_WAIT_MS)
        until(leader.runs.may_dispatch, "the leader has its lease")
        store = ReplicatedStore(leader.runs)
        return HostStorage(cast(Store, store), store.incarnation, copies=store)


class CopiedBroker(LoopbackBroker):
    """``group`` outlives it."""

    def __init__(self, folder: Path, group: Group, **properties: object) -> None:
        self._group = group
        super().__init__(folder, **properties)

    def _make_core(self, store: Path | None, io: IoThread) -> ConnectionCore:
        assert store is not None
        store.mkdir(exist_ok=True)
        config = Config.from_values({"raybroker.hosting.default": "shared", **self.properties})
        directory = CopiedDirectory(config, store, io, self._group)
        io.run(directory.start())
        return identified(ConnectionCore(directory, config, client_id=None, io=io))


def lose_leader(group: Group) -> None:
    """The node of the copy that leads goes, and comes back; nobody leads then, and none of the others heard it of
    late."""
    leader = group.leader()
    assert leader is not None
    leader.kill()
    group.pass_time(HEARD_MS + 100)
    others = [node.number for node in group.nodes if node is not leader]
    group.led(others)
    leader.begin()
