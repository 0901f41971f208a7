"""A broker whose hosts are objects that only remember what they were told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from raybroker.broker.broker import Broker
from raybroker.config import Config
from raybroker.config.live import LiveConfig
from raybroker.content.headers import message_id
from raybroker.errors import (
    BrokerError,
    ConnectionLostError,
    IllegalStateError,
    InvalidDestinationError,
    ResourceAllocationError,
    StoreError,
)
from raybroker.model.blocks.block import Block, encode_block

Row = dict[str, Any]
DMQ = ("queue", "mq.sys.dmq")


class FakeHost:
    """A host without messages but those a test puts into ``held``; what it was asked to change is in ``calls``."""

    def __init__(self, key: str, hosting: str = "shared", served: Iterable[Row] = ()) -> None:
        self.key = key
        self.hosting = hosting
        self.mute = False
        self.full = ""
        """Why it moves no more messages, and takes none from other hosts."""
        self.dies = False
        """It dies once, after it did what it is asked and before it answers."""
        self.refusal: BrokerError | None = None
        self.served: dict[tuple[str, str], Row] = {(row["type"], row["name"]): row for row in served}
        self.created: list[str] = []
        self.configured: Row | None = None
        self.quotas: Row | None = None
        self.policies: Row | None = None
        self.calls: list[tuple[Any, ...]] = []
        self.subscribed: list[Row] = []
        self.begun: list[Row] = []
        self.outcomes: dict[str, str] = {}
        self.held: dict[tuple[str, str], list[Row]] = {}
        self.encoded: dict[str, bytes] = {}
        self.imported: list[bytes] = []
        self.room = 0
        """When it is full: so many blocks are taken all in all."""
        self.subscriptions_gone: set[str] = set()

    def _ask(self) -> None:
        if self.mute:
            raise ConnectionLostError(f"{self.key} is restarting")

    def _answer(self) -> None:
        if self.dies:
            self.dies = False
            raise ConnectionLostError(f"{self.key} died")

    async def destinations(self) -> list[Row]:
        self._ask()
        return list(self.served.values())

    async def create(self, type: str, name: str, attributes: Row, auto_created: bool, owner: str | None) -> None:
        await asyncio.sleep(0)
        if self.refusal is not None:
            raise self.refusal
        self.created.append(name)
        self.served[type, name] = {**served(type, name, auto=auto_created, temporary=bool(owner)), **attributes}
        self.served[type, name]["attributes"] = dict(attributes)
        self._answer()

    async def update(self, type: str, name: str, changes: Row) -> None:
        self.calls.append(("update", type, name, changes))
        self.served[type, name]["attributes"].update(changes)

    async def destroy(self, type: str, name: str) -> None:
        await asyncio.sleep(0)
        if (type, name) not in self.served:
            raise InvalidDestinationError(f"{type} {name} does not exist")
        del self.served[type, name]
        self._answer()

    async def purge_destination(self, type: str, name: str) -> None:
        self.calls.append(("purge_destination", type, name))

    async def query(self, type: str, name: str) -> Row:
        self._ask()
        return {"state": "RUNNING", "attributes": {}, **self.served[type, name]}

    async def effective(self, type: str, name: str) -> Row:
        self._ask()
        return {"policy": "", "operator_policy": "", "effective": {}, "origins": {}}

    async def pause(self, type: str, name: str, which: str, until_ms: int) -> None:
        self._ask()
        self.calls.append(("pause", type, name, which, until_ms))

    async def resume(self, type: str, name: str, which: str) -> None:
        self._ask()
        self.calls.append(("resume", type, name, which))

    async def consumers(self, type: str | None, name: str | None) -> list[Row]:
        return [{"id": len(self.key), "type": type, "destination": name, "host": self.key}]

    async def reset(self, type: str, name: str) -> None:
        self._ask()
        self.calls.append(("reset", type, name))

    async def configure(self, changed: Row) -> None:
        self._ask()
        self.configured = changed

    async def define_quotas(self, quotas: Row) -> None:
        self._ask()
        self.quotas = quotas

    async def define_policies(self, policies: Row) -> None:
        self._ask()
        self.policies = policies

    async def pools(self) -> list[Row]:
        self._ask()
        return [
            {
                "quota": row["attributes"]["quota"],
                "messages": 1,
                "bytes": 2,
                "waiting": 0,
                "refused": 3,
                "destinations": [f"{key[0]} {key[1]}"],
            }
            for key, row in self.served.items()
            if row.get("attributes", {}).get("quota")
        ]

    async def state(self) -> Row:
        self._ask()
        return {"connections": 1}

    async def subscriptions(self, name: str | None) -> list[Row]:
        self._ask()
        return [row for row in self.subscribed if name in (None, row["topic"])]

    async def unsubscribe(self, topic: str, client_id: str, name: str) -> None:
        self.calls.append(("unsubscribe", topic, client_id, name))
        self.subscribed = [
            row for row in self.subscribed if (row["topic"], row["client_id"], row["name"]) != (topic, client_id, name)
        ]

    async def purge_subscription(self, topic: str, client_id: str, name: str) -> None:
        self.calls.append(("purge_subscription", topic, client_id, name))

    async def transactions(self) -> list[Row]:
        self._ask()
        return list(self.begun)

    async def settle_transaction(self, id: int, commit: bool) -> None:
        state = next(row["state"] for row in self.begun if row["id"] == id)
        if state != "PREPARED":
            raise IllegalStateError(f"transaction {id} is {state}")
        self.calls.append(("settle", id, commit))

    async def outcome(self, key: str) -> str:
        self._ask()
        return self.outcomes.get(key, "unknown")

    async def decide(self, key: str, commit: bool) -> None:
        self._ask()
        self.calls.append(("decide", key, commit))
        self.outcomes[key] = "committed" if commit else "rolled_back"
        self.begun = [row for row in self.begun if row["key"] != key]

    async def forget(self, key: str) -> None:
        self.calls.append(("forget", key))

    async def browse_messages(
        self,
        type: str,
        name: str,
        selector: str | None,
        start: Any,
        max: int,
        body_bytes_max: int,
    ) -> Row:
        rows = self.held.get((type, name), [])
        first = start or 0
        end = first + min(max, 2)
        return {"messages": rows[first:end], "next": end if end < len(rows) else None}

    async def delete_messages(self, type: str, name: str, selector: str | None, ids: list[str] | None) -> int:
        self.calls.append(("delete", type, name, selector, ids))
        rows = self.held.get((type, name), [])
        kept = [row for row in rows if ids is not None and row["id"] not in ids]
        self.held[type, name] = kept
        return len(rows) - len(kept)

    async def move_messages(
        self,
        type: str,
        name: str,
        selector: str | None,
        ids: list[str] | None,
        target_type: str | None,
        target: str | None,
    ) -> tuple[int, str]:
        self.calls.append(("move", type, name, selector, ids, target_type, target))
        return (len(ids) if ids is not None else 7), self.full

    async def export_messages(self, type: str, name: str, selector: str | None, start: Any, max_bytes: int) -> Row:
        named = [row["id"] for row in self.held.get((type, name), []) if selector is None or row["id"] in selector]
        at = start or 0
        blocks = [self.encoded.get(named[at]) or block_of(named[at])] if named else []
        return {"blocks": blocks, "next": at + 1 if at + 1 < len(named) else None}

    async def import_messages(self, type: str, name: str, blocks: list[bytes], subscription: str = "") -> int:
        self._ask()
        if self.full and len(self.imported) + len(blocks) > self.room:
            raise ResourceAllocationError(self.full)
        if subscription in self.subscriptions_gone:
            raise InvalidDestinationError("the subscription is gone")
        self.imported += blocks
        self.held.setdefault((type, name), []).extend(message(id_of(block)) for block in blocks)
        return len(blocks)


def served(type: str, name: str, *, auto: bool = False, temporary: bool = False) -> Row:
    return {"type": type, "name": name, "auto_created": auto, "temporary": temporary, "traits": {}, "paused": {}}


def block_of(id: str) -> bytes:
    """A message with that id, encoded."""
    producer, _, seq = id.removeprefix("ID:").partition("-")
    return encode_block(
        [b"x"], producer=int(producer, 16), first_seq=int(seq), timestamp_ms=1, persistent=True, kinds=0
    )


def id_of(data: bytes) -> str:
    block = Block(data)
    return message_id(block.producer, block.first_seq)


def message(id: str, state: str = "waiting", **fields: Any) -> Row:
    return {"id": id, "state": state, "properties": {}, **fields}


def subscription(topic: str, name: str, client_id: str = "c", **fields: Any) -> Row:
    return {
        "topic": topic,
        "client_id": client_id,
        "name": name,
        "durable": True,
        "shared": False,
        "selector": None,
        "no_local": False,
        "active": False,
        "messages": 0,
        "consumers": 0,
        **fields,
    }


class World:
    """A broker whose hosts are made and dropped here."""

    def __init__(self, changed: Any = None, **properties: object) -> None:
        self.made: list[FakeHost] = []
        self.dropped: list[Any] = []
        self.next_dies = False
        self.next_refuses: BrokerError | None = None
        """What the next host that is made does, see FakeHost."""
        self.saved: list[Any] = []
        config = Config.of({name.replace("__", "."): value for name, value in properties.items()})
        self.kept: Any = changed or {}
        self.broken_disk = False
        self.broker: Any = Broker(
            LiveConfig(config, changed),
            make_host=self._make,
            drop_host=self._drop,
            save_templates=self._save,
            save_properties=self._keep,
        )

    async def admin(self, verb: str, **args: Any) -> Any:
        return await self.broker.admin(verb, args)

    async def _make(self, hosting: str) -> Any:
        await asyncio.sleep(0)
        host = FakeHost(f"h{len(self.made) + 1}", hosting)
        host.dies, host.refusal = self.next_dies, self.next_refuses
        self.next_dies, self.next_refuses = False, None
        self.made.append(host)
        return host

    async def _drop(self, host: Any) -> None:
        self.dropped.append(host)

    async def _keep(self, properties: Any) -> None:
        if self.broken_disk:
            raise StoreError("the disk is broken")
        self.kept = properties

    async def _save(self, templates: Any) -> None:
        self.saved.append(templates)
