"""A host's clients inside the cluster: listed by their identity, ended, and not taken again."""

from __future__ import annotations

import asyncio

from raybroker.services.clients.clients_inside import HostClientsInside
from raybroker.wire.native import frames as wire
from tests.fuzz.rig import Rig


def hello(connection: str) -> bytes:
    told = {"connection": connection, "client_id": f"of {connection}", "pid": 7, "platform": "x" * 1000}
    return bytes(wire.call(1, "hello", told))


def test_one_that_was_ended_is_told_why_and_does_not_come_in_again() -> None:
    async def main() -> None:
        async with Rig() as rig:
            inside = HostClientsInside(rig.service.service)
            first, other, nameless = rig.guest(), rig.guest(), rig.guest()
            first.feed(hello("c1"))
            other.feed(hello("c2"))
            nameless.feed(bytes(wire.call(1, "hello", {})))
            rows = {row["id"]: row for row in await inside.client_rows()}
            assert set(rows) == {"c1", "c2"}
            assert (rows["c1"]["client_id"], rows["c1"]["pid"], len(rows["c1"]["platform"])) == ("of c1", "7", 100)
            assert await inside.end_clients(["c1", "c9"], "call 4711") == ["c1"]
            await asyncio.sleep(0)
            assert first.closed
            assert b"call 4711" in first.transport.written
            assert not other.closed
            again, away = rig.guest(), rig.guest()
            again.feed(hello("c1"))
            away.feed(hello("c9"))
            for refused in (again, away):
                assert refused.closed
                assert b"call 4711" in refused.transport.written
            assert await inside.end_clients(["c1"], "again") == []
            assert [row["id"] for row in await inside.client_rows()] == ["c2"]
            assert rig.serves()

    asyncio.run(main())
