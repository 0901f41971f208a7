"""A broker whose hosts are objects that only remember what they were told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from raybroker.broker.broker import Broker, BrokerHosts, BrokerKept, OtherBrokers
from raybroker.broker.destinations.message_administration import Led, none_led
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
        self.drained_nodes: dict[str, int] = {}
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
        self.destinations = _Destinations(self)
        self.process = _Process(self)
        self.pools = _Pools(self)
        self.subscriptions = _Subscriptions(self)
        self.transactions = _Transactions(self)
        self.messages = _Messages(self)

    def asked(self) -> None:
        if self.mute:
            raise ConnectionLostError(f"{self.key} is restarting")

    def answered(self) -> None:
        if self.dies:
            self.dies = False
            raise ConnectionLostError(f"{self.key} died")


class _Role:
    """A role of a fake host, see hosting.host_port."""

    def __init__(self, host: FakeHost) -> None:
        self.host = host


class _Destinations(_Role):
    async def destination_rows(self) -> list[Row]:
        self.host.asked()
        return list(self.host.served.values())

    async def create(self, type: str, name: str, attributes: Row, auto_created: bool, owner: str | None) -> None:
        await asyncio.sleep(0)
        host = self.host
        if host.refusal is not None:
            raise host.refusal
        host.created.append(name)
        host.served[type, name] = {**served(type, name, auto=auto_created, temporary=bool(owner)), **attributes}
        host.served[type, name]["attributes"] = dict(attributes)
        host.answered()

    async def update(self, type: str, name: str, changes: Row) -> None:
        self.host.calls.append(("update", type, name, changes))
        self.host.served[type, name]["attributes"].update(changes)

    async def destroy(self, type: str, name: str) -> None:
        await asyncio.sleep(0)
        if (type, name) not in self.host.served:
            raise InvalidDestinationError(f"{type} {name} does not exist")
        del self.host.served[type, name]
        self.host.answered()

    async def purge(self, type: str, name: str) -> None:
        self.host.calls.append(("purge_destination", type, name))

    async def query(self, type: str, name: str) -> Row:
        self.host.asked()
        return {"state": "RUNNING", "attributes": {}, **self.host.served[type, name]}

    async def pause(self, type: str, name: str, which: str, until_ms: int) -> None:
        self.host.asked()
        self.host.calls.append(("pause", type, name, which, until_ms))

    async def resume(self, type: str, name: str, which: str) -> None:
        self.host.asked()
        self.host.calls.append(("resume", type, name, which))

    async def consumers(self, type: str | None, name: str | None) -> list[Row]:
        key = self.host.key
        return [{"id": len(key), "type": type, "destination": name, "host": key}]

    async def reset(self, type: str, name: str) -> None:
        self.host.asked()
        self.host.calls.append(("reset", type, name))


class _Process(_Role):
    async def configure(self, changed: Row) -> None:
        self.host.asked()
        self.host.configured = changed

    async def drain_nodes(self, until_ms: dict[str, int]) -> None:
        self.host.asked()
        self.host.drained_nodes = until_ms

    async def state(self) -> Row:
        self.host.asked()
        return {"connections": 1}


class _Pools(_Role):
    async def define_quotas(self, quotas: Row) -> None:
        self.host.asked()
        self.host.quotas = quotas

    async def define_policies(self, policies: Row) -> None:
        self.host.asked()
        self.host.policies = policies

    async def effective(self, type: str, name: str) -> Row:
        self.host.asked()
        return {"policy": "", "operator_policy": "", "effective": {}, "origins": {}}

    async def pool_rows(self) -> list[Row]:
        self.host.asked()
        return [
            {
                "quota": row["attributes"]["quota"],
                "messages": 1,
                "bytes": 2,
                "waiting": 0,
                "refused": 3,
                "destinations": [f"{key[0]} {key[1]}"],
            }
            for key, row in self.host.served.items()
            if row.get("attributes", {}).get("quota")
        ]


class _Subscriptions(_Role):
    async def subscription_rows(self, name: str | None) -> list[Row]:
        self.host.asked()
        return [row for row in self.host.subscribed if name in (None, row["topic"])]

    async def unsubscribe(self, topic: str, client_id: str, name: str) -> None:
        host, gone = self.host, (topic, client_id, name)
        host.calls.append(("unsubscribe", *gone))
        host.subscribed = [row for row in host.subscribed if (row["topic"], row["client_id"], row["name"]) != gone]

    async def purge(self, topic: str, client_id: str, name: str) -> None:
        self.host.calls.append(("purge_subscription", topic, client_id, name))


class _Transactions(_Role):
    async def transaction_rows(self) -> list[Row]:
        self.host.asked()
        return list(self.host.begun)

    async def decide_by_hand(self, id: int, commit: bool) -> None:
        state = next(row["state"] for row in self.host.begun if row["id"] == id)
        if state != "PREPARED":
            raise IllegalStateError(f"transaction {id} is {state}")
        self.host.calls.append(("settle", id, commit))

    async def outcome(self, key: str) -> str:
        self.host.asked()
        return self.host.outcomes.get(key, "unknown")

    async def decide(self, key: str, commit: bool) -> None:
        self.host.asked()
        self.host.calls.append(("decide", key, commit))
        self.host.outcomes[key] = "committed" if commit else "rolled_back"
        self.host.begun = [row for row in self.host.begun if row["key"] != key]

    async def forget_transaction(self, key: str) -> None:
        self.host.calls.append(("forget", key))


class _Messages(_Role):
    async def browse(
        self,
        type: str,
        name: str,
        selector: str | None,
        start: Any,
        max: int,
        body_bytes_max: int,
    ) -> Row:
        rows = self.host.held.get((type, name), [])
        first = start or 0
        end = first + min(max, 2)
        return {"messages": rows[first:end], "next": end if end < len(rows) else None}

    async def delete(self, type: str, name: str, selector: str | None, ids: list[str] | None) -> int:
        self.host.calls.append(("delete", type, name, selector, ids))
        rows = self.host.held.get((type, name), [])
        kept = [row for row in rows if ids is not None and row["id"] not in ids]
        self.host.held[type, name] = kept
        return len(rows) - len(kept)

    async def move(
        self,
        type: str,
        name: str,
        selector: str | None,
        ids: list[str] | None,
        target_type: str | None,
        target: str | None,
    ) -> tuple[int, str]:
        self.host.calls.append(("move", type, name, selector, ids, target_type, target))
        return (len(ids) if ids is not None else 7), self.host.full

    async def export(self, type: str, name: str, selector: str | None, start: Any, max_bytes: int) -> Row:
        held, encoded = self.host.held.get((type, name), []), self.host.encoded
        named = [row["id"] for row in held if selector is None or row["id"] in selector]
        at = start or 0
        blocks = [encoded.get(named[at]) or block_of(named[at])] if named else []
        return {"blocks": blocks, "next": at + 1 if at + 1 < len(named) else None}

    async def put(self, type: str, name: str, blocks: list[bytes], subscription: str = "") -> int:
        host = self.host
        host.asked()
        if host.full and len(host.imported) + len(blocks) > host.room:
            raise ResourceAllocationError(host.full)
        if subscription in host.subscriptions_gone:
            raise InvalidDestinationError("the subscription is gone")
        host.imported += blocks
        host.held.setdefault((type, name), []).extend(message(id_of(block)) for block in blocks)
        return len(blocks)


def served(type: str, name: str, *, auto: bool = False, temporary: bool = False) -> Row:
    return {
        "type": type,
        "name": name,
        "auto_created": auto,
        "temporary": temporary,
        "traits": {},
        "paused": {},
        "starts_paused": [],
    }


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
    """A broker whose hosts are made and dropped here.  ``led``: gives hosts of other brokers that lead a log."""

    def __init__(self, changed: Any = None, led: Led = none_led, **properties: object) -> None:
        self.made: list[FakeHost] = []
        self.dropped: list[Any] = []
        self.next_dies = False
        self.next_refuses: BrokerError | None = None
        """What the next host that is made does, see FakeHost."""
        self.saved: list[Any] = []
        config = Config.from_values({name.replace("__", "."): value for name, value in properties.items()})
        self.kept: Any = changed or {}
        self.broken_disk = False
        self.broker: Any = Broker(
            LiveConfig(config, changed),
            BrokerHosts(self._make, self._drop),
            BrokerKept(save=self._save),
            OtherBrokers(led=led),
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

    async def _save(self, field: str, value: Any) -> None:
        if field == "templates":
            self.saved.append(value)
        if field == "properties":
            if self.broken_disk:
                raise StoreError("the disk is broken")
            self.kept = value
