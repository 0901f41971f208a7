"""One host on a store in memory, with clients that remember what they are told; nothing is durable before ``sync``."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from raybroker.config import Config
from raybroker.content.bodies import WORK, work_rows
from raybroker.content.headers import content_of, encode_header
from raybroker.core.destination import Destination
from raybroker.engine.host import BodyPlaces, Host, HostIdentity, Surroundings
from raybroker.hosting.block_codec import WireCodec
from raybroker.model.blocks.block import Block, encode_block
from raybroker.model.blocks.record import LogEntry
from raybroker.model.definitions.quota import quota_of
from raybroker.model.settings.settings import dead_message_queue, destination_attributes
from raybroker.store.memory import MemoryStore

DMQ = "mq.sys.dmq"


class Clock:
    """``stepped_ms``: by so much the clock of the machine was set."""

    def __init__(self) -> None:
        self.ms = 1_000_000
        self.stepped_ms = 0

    def now_ms(self) -> int:
        return self.ms + self.stepped_ms

    def monotonic_ns(self) -> int:
        return self.ms * 1_000_000


class SlowCommitter:
    """Commits when told to."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.waiting: list[tuple[Sequence[LogEntry], Callable[[], None]]] = []
        self.overloaded = False
        self.pending_bytes = self.tidied = 0

    def submit(self, entries: Sequence[LogEntry], done: Callable[[], None]) -> None:
        self.waiting.append((entries, done))

    def sync(self) -> None:
        while self.waiting:
            entries, done = self.waiting.pop(0)
            if entries:
                self.store.commit(entries)
            done()

    def tidy(self) -> None:
        self.tidied += 1

    def close(self) -> None: ...


class FakeMemory:
    """Per mille of a limit of 1000 MiB that are ``used``; ``given_back``: how often freed memory was asked for."""

    def __init__(self) -> None:
        self.used = 0
        self.looks = 0
        self.given_back: list[bool] = []

    def usage(self) -> tuple[int, int]:
        self.looks += 1
        return self.used << 20, 1000 << 20

    def give_back(self, *, thorough: bool) -> None:
        self.given_back.append(thorough)


class RecordingPeer:
    """Remembers what it is told; ``full`` is a connection that takes no more."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.full = False

    def full(self) -> bool:
        return False

    def congested(self) -> bool:
        return self.full

    def room(self) -> int:
        return 0

    def deliver(self, handle: int, epoch: int, tag: int, attempt: int, block: Any) -> None:
        self.told.append(("deliver", handle, tag, attempt, Block(b"".join(block))))

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: self.told.append((name, *args))

    def take(self, *names: str) -> list[tuple[Any, ...]]:
        """What it was told, or that part of it; the rest stays."""
        found = [row for row in self.told if not names or row[0] in names]
        self.told = [row for row in self.told if names and row[0] not in names]
        return found


class Client:
    """A connection with its session. Messages are named by their bodies."""

    def __init__(self, rig: Rig, client_id: str | None = None, connection: str = "", *, started: bool = True) -> None:
        self.rig = rig
        self.peer = RecordingPeer()
        self.session = rig.host.open_session(self.peer)
        self.epochs: dict[int, int] = {}
        self.tags: dict[tuple[int, str], int] = {}
        self._next_handle = 0
        self._next_seq = 1
        self._request = 100
        self.ok("hello", client_id=client_id, connection=connection, started=started)

    # ---- calls -----------------------------------------------------------------------------------------------------

    def _call(self, op: str, args: dict[str, Any], *, sync: bool) -> list[tuple[Any, ...]]:
        self._request += 1
        self.session.call(self._request, op, args)
        if sync:
            self.rig.sync()
        return [row for row in self.peer.take("reply", "failed") if row[1] == self._request]

    def ok(self, op: str, **args: Any) -> Any:
        """The answer to a request that succeeds."""
        ((verb, _, *answer),) = self._call(op, args, sync=True)
        assert verb == "reply", answer
        return answer[0]

    def fails(self, op: str, **args: Any) -> str:
        """The code of a request that fails."""
        ((verb, _, *answer),) = self._call(op, args, sync=True)
        assert verb == "failed", answer
        return str(answer[0])

    def unanswered(self, op: str, **args: Any) -> bool:
        """True when the answer waits for the store."""
        return not self._call(op, args, sync=False)

    # ---- messages --------------------------------------------------------------------------------------------------

    def handle(self) -> int:
        self._next_handle += 1
        return self._next_handle

    def producer(self, name: str = "q", kind: str = "queue", number: int = 7) -> int:
        handle = self.handle()
        self.ok("open_producer", handle=handle, name=name, type=kind, producer=number)
        return handle

    def send(self, handle: int, *bodies: str, first: int | None = None, txn: int = 0, **more: Any) -> None:
        if first is None:
            first = self._next_seq
            self._next_seq += len(bodies)
        producer = self.session.producer_ids.get(handle, 7)
        block = made(*bodies, producer=producer, first_seq=first, now_ms=self.rig.clock.now_ms(), **more)
        self.session.send(handle, 1, block, txn)

    def consumer(self, name: str = "q", kind: str = "queue", limit: int = 100, **more: Any) -> int:
        handle = self.handle()
        args = {"handle": handle, "name": name, "type": kind, "flow": "prefetch", "limit": limit, "no_ack": False}
        self.epochs[handle] = self.ok("open_consumer", **args | more)["epoch"]
        return handle

    def got(self, handle: int | None = None) -> list[str]:
        """Bodies of what was delivered since the last time, with the attempt from the second on."""
        self.rig.sync()
        found = []
        for _, to, tag, attempt, block in self.peer.take("deliver"):
            for index in range(block.count):
                body = text_of(block, index)
                self.tags[to, body] = tag + index
                if handle in (None, to):
                    found.append(body + (f"({attempt})" if attempt > 1 else ""))
        return found

    def blocks(self) -> list[Block]:
        self.rig.sync()
        return [row[4] for row in self.peer.take("deliver")]

    def tag(self, handle: int, body: str) -> list[tuple[int, int]]:
        return [(self.tags[handle, body], self.tags[handle, body])]

    def ack(self, handle: int, *bodies: str) -> None:
        self.session.acknowledge(handle, self.epochs[handle], 1, [self.tag(handle, body)[0] for body in bodies])

    def settle(self, handle: int, outcome: str, body: str, delay_ms: int = -1, reason: str = "") -> None:
        ranges = self.tag(handle, body)
        self.session.settle_deliveries(handle, self.epochs[handle], 1, outcome, delay_ms, reason, ranges)

    def acks(self, handle: int, *bodies: str) -> list[Any]:
        """Acknowledgements as a transaction gets them."""
        return [[handle, self.epochs[handle], [list(self.tag(handle, body)[0]) for body in bodies]]]

    def refused(self) -> list[str]:
        """Codes of what was refused, message by message."""
        self.rig.sync()
        rows = [row for _, _, _, _, refused in self.peer.take("sent") for row in refused]
        return [row.code for row in rows for _ in range(row.start, row.end)]


def text_of(block: Block, index: int) -> str:
    """A body as text; that of a unit of work is [its+parts]."""
    if block.kind_of(index) == WORK:
        return f"[{'+'.join(row.body.decode() for row in work_rows(block.body(index)))}]"
    return bytes(block.body(index)).decode()


class Rig:
    """``reports``: the log. ``away``: blocks for other hosts, with whom to tell."""

    def __init__(
        self,
        store: MemoryStore | None = None,
        incarnation: int = 1,
        clock: Clock | None = None,
        *,
        forwards: bool = False,
        memory: FakeMemory | None = None,
        quotas: dict[str, Any] | None = None,
        **config: Any,
    ) -> None:
        self.memory = memory
        self.store = store or MemoryStore()
        self.clock = clock or Clock()
        self.config = config
        self.forwards = forwards
        self.incarnation = incarnation
        self.failures: list[Exception] = []
        self.reports: list[str] = []
        self.idle: list[tuple[str, str]] = []
        self.alarms: list[int] = []
        self.away: list[tuple[str, str, Block, Callable[[bool], None]]] = []
        names = {key.replace("__", "."): value for key, value in config.items()}
        self.host = Host(
            self.store,
            self.clock,
            Config.from_values({"raybroker.memory.block_cache_bytes": 1 << 20, **names}),
            codec=WireCodec(),
            identity=HostIdentity(incarnation, 99, "b1"),
            places=BodyPlaces(memory),
            surroundings=Surroundings(
                failed=self.failures.append,
                idle=self._idle,
                alarm=self.alarms.append,
                forward=self._forward if forwards else None,
                report=self.reports.append,
            ),
        )
        self.host.pools.quotas = {name: quota_of(given) for name, given in (quotas or {}).items()}
        self.committer = SlowCommitter(self.store)
        self.host.start(self.committer)
        self.committer.sync()

    def _idle(self, kind: str, name: str) -> None:
        self.idle.append((kind, name))
        self.host.executor.later(lambda: self.host.removal.destroy(name, lambda: None, kind))

    def _forward(self, kind: str, name: str, data: bytes, done: Callable[[bool], None]) -> None:
        self.away.append((kind, name, Block(data), done))

    def sync(self) -> None:
        self.committer.sync()

    def restart(self, **config: Any) -> Rig:
        """The same store after the process died, with what was durable."""
        changed = self.config | config
        quotas = dict(self.host.pools.quotas)
        store = self.store.crash()
        return Rig(store, self.incarnation + 1, self.clock, forwards=self.forwards, quotas=quotas, **changed)

    def survivor(self) -> Rig:
        """What a restart would find if the process died now; this one lives on."""
        return Rig(MemoryStore(self.store._log), self.incarnation + 1, self.clock, **self.config)

    def create(
        self,
        name: str = "q",
        kind: str = "queue",
        *,
        auto_created: bool = False,
        owner: str | None = None,
        **attributes: Any,
    ) -> Destination:
        if name == DMQ:
            made_of = dead_message_queue()
        else:
            made_of = destination_attributes(attributes, type="topic" if kind == "topic" else "queue")
        self.host.administration.create(
            name, made_of, auto_created=auto_created, done=lambda: None, kind=kind, owner=owner
        )
        self.sync()
        return self.destination(name, kind)

    def destination(self, name: str = "q", kind: str = "queue") -> Destination:
        return self.host.registry.destinations[kind, name]

    def held(self, name: str = "q", kind: str = "queue") -> int:
        return self.destination(name, kind).block_index.messages

    def tick(self, ms: int = 0) -> None:
        self.clock.ms += ms
        self.host.tick()
        self.sync()

    def waiting(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        """Body and properties of everything in a queue, as a browser sees it."""
        looker = Client(self)
        looker.ok("open_browser", handle=1, name=name, type="queue", selector=None)
        looker.ok("browse", handle=1, max=10_000)
        found = [
            (text_of(block, i), dict(content_of(block).properties(i)))
            for block in looker.blocks()
            for i in range(block.count)
        ]
        looker.session.close()
        return found

    def bodies(self, name: str) -> list[str]:
        return [body for body, _ in self.waiting(name)]

    def commits(self) -> list[list[LogEntry]]:
        """Batches that wait to become durable."""
        return [list(entries) for entries, _ in self.committer.waiting if entries]


def made(
    *bodies: str,
    producer: int = 7,
    first_seq: int = 1,
    persistent: bool = True,
    priority: int = 4,
    ttl: int = 0,
    delay: int = 0,
    now_ms: int = 0,
    properties: dict[str, Any] | None = None,
    dedup: bool = False,
) -> Block:
    """A block of messages that have the same headers; ``ttl`` and ``delay`` in milliseconds."""
    headers = None
    if properties or dedup:
        headers = [encode_header(properties, None, None, None, body if dedup else None) for body in bodies]

    def times(span_ms: int) -> array[int] | None:
        return array("Q", [now_ms + span_ms] * len(bodies)) if span_ms else None

    return Block(
        encode_block(
            [body.encode() for body in bodies],
            producer=producer,
            first_seq=first_seq,
            timestamp_ms=now_ms,
            persistent=persistent,
            kinds=0,
            headers=headers,
            priority=priority,
            expires=times(ttl),
            deliver_at=times(delay),
        )
    )
