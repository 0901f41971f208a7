"""A host with schedules, and what they have sent."""

from __future__ import annotations

from typing import Any

from raybroker.content.headers import encode_header
from raybroker.model.blocks.block import encode_block
from raybroker.model.blocks.record import BLOCK
from raybroker.store.memory import MemoryStore
from tests.unit.engine.rig import Client, Rig

ID, SEQUENCE, OCCURRENCE = "JMS_RB_SCHEDULE_ID", "JMS_RB_SCHEDULE_SEQUENCE", "JMS_RB_SCHEDULE_TIME"


def message(body: str, *, persistent: bool = True, priority: int = 4, **properties: Any) -> bytes:
    header = encode_header(properties, None, None, None)
    return encode_block(
        [body.encode()],
        producer=0,
        first_seq=1,
        timestamp_ms=1,
        persistent=persistent,
        kinds=1,
        headers=[header] if header else None,
        priority=priority,
    )


def asked(name: str = "s1", schedule: str = "@every 10s", body: str = "tick", **more: Any) -> dict[str, Any]:
    """The request for a schedule, but for the handle."""
    own = {key: more.pop(key) for key in ("persistent", "priority") if key in more}
    data = message(body, **own, **more.pop("properties", {}))
    return {"id": name, "schedule": schedule, "timezone": "UTC", "message": data} | more


def schedule(rig: Rig, where: str = "q", kind: str = "queue", **more: Any) -> str:
    """A schedule that a client has made, and who has left since; its id."""
    client = Client(rig)
    handle = client.producer(where, kind)
    found = client.ok("schedule", handle=handle, **asked(**more))["id"]
    client.session.close()
    return str(found)


def refused(rig: Rig, where: str = "q", kind: str = "queue", **more: Any) -> str:
    client = Client(rig)
    code = client.fails("schedule", handle=client.producer(where, kind), **asked(**more))
    client.session.close()
    return code


def sent(rig: Rig, name: str = "q") -> list[tuple[str, int, int]]:
    """(schedule, sequence, occurrence) of everything in a queue."""
    return [(p[ID], p[SEQUENCE], p[OCCURRENCE]) for _, p in rig.waiting(name)]


def sequences(rig: Rig, name: str = "q") -> list[int]:
    return [sequence for _, sequence, _ in sent(rig, name)]


def live_blocks(rig: Rig) -> list[int]:
    """Messages of schedules that the store keeps."""
    store = rig.store
    assert isinstance(store, MemoryStore)
    return [ordinal for destination, ordinal in store._blocks if destination == 0]


def reclaim(rig: Rig) -> None:
    """The store drops the messages of schedules that are over, as it may before the next checkpoint."""
    store = rig.store
    assert isinstance(store, MemoryStore)
    dead = {key for key in store._freed if key[0] == 0}
    store._log[:] = [e for e in store._log if e.kind != BLOCK or (e.destination, e.ordinal) not in dead]
