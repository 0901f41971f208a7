"""A host actor as the broker sees it: every method is one call of the actor."""

from __future__ import annotations

from typing import Any

from raybroker.actors import runtime
from raybroker.actors.host import HostSpec
from raybroker.hosting.host_port import Page, Row


class RemoteHost:
    """``actor`` is the handle of a DestinationHost; see services.ports for the methods."""

    def __init__(self, actor: Any, spec: HostSpec) -> None:
        self.actor = actor
        self.spec = spec

    @property
    def key(self) -> str:
        return self.spec.key

    @property
    def hosting(self) -> str:
        return self.spec.hosting

    async def where(self, timeout_s: float = runtime.CALL_TIMEOUT_S) -> tuple[str, int, int]:
        """(ip, port, process id)."""
        found: tuple[str, int, int] = await runtime.call(self.actor.where, timeout_s=timeout_s)
        return found

    async def state(self) -> Row:
        return await runtime.call(self.actor.state)

    async def metrics(self, names: str | None) -> Row:
        return await self._ask("metrics", names)

    async def _ask(self, method: str, *args: Any) -> Any:
        return await runtime.call(self.actor.ask, method, *args)

    async def create(
        self, type: str, name: str, attributes: Row, auto_created: bool, owner: str | None
    ) -> None:
        await self._ask("create", type, name, attributes, auto_created, owner)

    async def create_many(self, rows: list[Row]) -> list[str]:
        failed: list[str] = await self._ask("create_many", rows)
        return failed

    async def update(self, type: str, name: str, changes: Row) -> None:
        await self._ask("update", type, name, changes)

    async def destroy(self, type: str, name: str) -> None:
        await self._ask("destroy", type, name)

    async def purge_destination(self, type: str, name: str) -> None:
        await self._ask("purge_destination", type, name)

    async def query(self, type: str, name: str) -> Row:
        return await self._ask("query", type, name)

    async def live_units(self, type: str, name: str, names: list[str]) -> list[str]:
        found: list[str] = await self._ask("live_units", type, name, names)
        return found

    async def pause(self, type: str, name: str, which: str, until_ms: int) -> None:
        await self._ask("pause", type, name, which, until_ms)

    async def resume(self, type: str, name: str, which: str) -> None:
        await self._ask("resume", type, name, which)

    async def reset(self, type: str, name: str) -> None:
        await self._ask("reset", type, name)

    async def destinations(self) -> list[Row]:
        return await self._ask("destinations")

    async def configure(self, changed: Row) -> None:
        await self._ask("configure", changed)

    async def consumers(self, type: str | None, name: str | None) -> list[Row]:
        return await self._ask("consumers", type, name)

    async def subscriptions(self, name: str | None) -> list[Row]:
        return await self._ask("subscriptions", name)

    async def subscribe(
        self, topic: str, client_id: str, name: str, shared: bool, selector: str | None, no_local: bool
    ) -> None:
        await self._ask("subscribe", topic, client_id, name, shared, selector, no_local)

    async def unsubscribe(self, topic: str, client_id: str, name: str) -> None:
        await self._ask("unsubscribe", topic, client_id, name)

    async def purge_subscription(self, topic: str, client_id: str, name: str) -> None:
        await self._ask("purge_subscription", topic, client_id, name)

    async def schedules(self, type: str | None, name: str | None) -> list[Row]:
        return await self._ask("schedules", type, name)

    async def destroy_schedule(self, id: str) -> None:
        await self._ask("destroy_schedule", id)

    async def transactions(self) -> list[Row]:
        return await self._ask("transactions")

    async def settle_transaction(self, id: int, commit: bool) -> None:
        await self._ask("settle_transaction", id, commit)

    async def outcome(self, key: str) -> str:
        return await self._ask("outcome", key)

    async def decide(self, key: str, commit: bool) -> None:
        await self._ask("decide", key, commit)

    async def forget(self, key: str) -> None:
        await self._ask("forget", key)

    async def browse_messages(
        self, type: str, name: str, selector: str | None, start: Any, max: int, body_bytes_max: int
    ) -> Page:
        return await self._ask("browse_messages", type, name, selector, start, max, body_bytes_max)

    async def delete_messages(
        self, type: str, name: str, selector: str | None, ids: list[str] | None
    ) -> int:
        return await self._ask("delete_messages", type, name, selector, ids)

    async def move_messages(
        self, type: str, name: str, selector: str | None, ids: list[str] | None,
        target_type: str | None, target: str | None,
    ) -> int:  # fmt: skip
        return await self._ask("move_messages", type, name, selector, ids, target_type, target)

    async def export_messages(
        self, type: str, name: str, selector: str | None, start: Any, max_bytes: int
    ) -> Page:
        return await self._ask("export_messages", type, name, selector, start, max_bytes)

    async def import_messages(
        self, type: str, name: str, blocks: list[bytes], subscription: str = ""
    ) -> int:
        return await self._ask("import_messages", type, name, blocks, subscription)

    async def damaged_messages(self, type: str, name: str) -> list[Row]:
        return await self._ask("damaged_messages", type, name)

    async def skip_messages(self, type: str, name: str) -> int:
        return await self._ask("skip_messages", type, name)

    async def set_aside(
        self, type: str, name: str, txn: str, messages_max: int, bytes_max: int
    ) -> list[bytes]:
        found: list[bytes] = await self._ask("set_aside", type, name, txn, messages_max, bytes_max)
        return found

    async def give(self, txn: str) -> None:
        await self._ask("give", txn)

    async def keep(self, txn: str) -> None:
        await self._ask("keep", txn)

    async def take(self, type: str, name: str, txn: str, coordinator: str, blocks: list[bytes]) -> int:
        return int(await self._ask("take", type, name, txn, coordinator, blocks))
