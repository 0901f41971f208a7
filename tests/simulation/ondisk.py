"""What is on disk, as dumb as possible: messages by delivery queue, changed when a batch is synced.

A key is ordinal and index of a message in one integer.
"""

from __future__ import annotations

from typing import Any

INDEX_BITS = 11


class Message:
    """What is the same wherever the message is. ``claims``: how many delivery queues owe it, in the twin that it
    belongs to.

    ``made``: the value that its producer made it of, which its headers follow from.
    """

    __slots__ = ("claims", "deliver_at", "expires", "made", "persistent", "priority", "size", "unit", "value")

    def __init__(
        self,
        value: int,
        size: int,
        persistent: bool,
        priority: int = 4,
        expires: int = 0,
        deliver_at: int = 0,
        unit: str | None = None,
        made: int | None = None,
    ) -> None:
        self.value = value
        self.size = size
        self.persistent = persistent
        self.priority = priority
        self.expires = expires
        self.deliver_at = deliver_at
        self.unit = unit
        self.made = value if made is None else made
        self.claims = 0

    def copy(self) -> Message:
        return Message(
            self.value, self.size, self.persistent, self.priority, self.expires, self.deliver_at, self.unit, self.made
        )


class Row:
    """One message of one delivery queue. ``due``: it rests until then. ``dying``: it was dead when the host stopped."""

    __slots__ = ("attempts", "due", "dying", "failures", "message", "state")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.attempts = 0
        self.failures = 0
        self.due = 0
        self.dying = False
        self.state: bytes | None = None
        """What its last checkpoint says."""


class Delta:
    """What one outcome changes on disk: (name of a method of OnDisk, its arguments). ``discarded``: where and value."""

    __slots__ = ("discarded", "number", "ops")

    def __init__(self, number: int) -> None:
        self.number = number
        self.ops: list[tuple[Any, ...]] = []
        self.discarded: list[tuple[int, int]] = []

    def add(self, op: str, *args: Any) -> None:
        self.ops.append((op, *args))

    def __bool__(self) -> bool:
        return bool(self.ops)


class OnDisk:
    """One destination. ``waiting`` and ``staged``: transaction → what it sent and consumed, while it is prepared."""

    def __init__(self, *, is_queue: bool) -> None:
        self.is_queue = is_queue
        self.queues: dict[int, dict[int, Row]] = {0: {}} if is_queue else {}
        self.subscriptions: dict[int, Any] = {}
        self.waiting: dict[int, dict[int, tuple[Message, tuple[int, ...]]]] = {}
        self.staged: dict[int, set[tuple[int, int]]] = {}
        self.told: set[int] = set()
        """Keys whose death is settled in one delivery queue of a topic: the others need not tell it again."""
        self.left: dict[int, int] = {}
        self.taken: set[int] = set()
        self.top: dict[int, int] = {}
        self.gone = False
        self.version: int | None = None

    @property
    def empty(self) -> bool:
        return not any(self.queues.values()) and not self.waiting

    def apply(self, delta: Delta) -> None:
        for op, *args in delta.ops:
            getattr(self, f"_{op}")(*args)

    def _count(self, key: int, change: int) -> None:
        ordinal = key >> INDEX_BITS
        self.left[ordinal] = self.left.get(ordinal, 0) + change

    def _take(self, value: int) -> None:
        self.taken.add(value)
        self.top[value >> 32] = max(value, self.top.get(value >> 32, 0))

    def _add(self, queue: int, key: int, message: Message) -> None:
        assert key not in self.queues[queue]
        self.queues[queue][key] = Row(message)
        self._count(key, 1)

    def _tried(self, queue: int, key: int, attempts: int) -> None:
        assert key in self.queues[queue], "a message is recorded as handed out before it is recorded"
        self.queues[queue][key].attempts = attempts

    def _failed(self, queue: int, key: int, failures: int, due: int) -> None:
        row = self.queues[queue][key]
        row.failures = max(row.failures, failures)
        row.due = due

    def _checkpoint(self, queue: int, key: int, state: bytes) -> None:
        self.queues[queue][key].state = state

    def _tell(self, key: int) -> None:
        self.told.add(key)

    def _removed(self, queue: int, key: int) -> None:
        assert key in self.queues[queue], "a message is recorded as settled before it is recorded"
        del self.queues[queue][key]
        self._count(key, -1)

    def _queue(self, number: int, subscription: Any) -> None:
        self.queues[number] = {}
        self.subscriptions[number] = subscription

    def _queue_gone(self, number: int) -> None:
        for key in self.queues.pop(number):
            self._count(key, -1)
        del self.subscriptions[number]
        for keys in self.staged.values():
            keys.difference_update([item for item in keys if item[0] == number])

    def _wait(self, txn: int, key: int, message: Message, queues: tuple[int, ...]) -> None:
        self.waiting.setdefault(txn, {})[key] = message, queues
        self._count(key, 1)

    def _stage(self, txn: int, queue: int, key: int) -> None:
        self.staged.setdefault(txn, set()).add((queue, key))

    def _decided(self, txn: int) -> None:
        for key in self.waiting.pop(txn, {}):
            self._count(key, -1)
        self.staged.pop(txn, None)

    def _version(self, version: int) -> None:
        self.version = version

    def _gone(self) -> None:
        self.gone = True
