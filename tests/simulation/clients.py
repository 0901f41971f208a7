"""Clients: machines with one connection each, and on them producers and consumers.

What a client counts and remembers is the production client's own state machines
(``raybroker.client.producer.producer_state``, ``flow``); what it does when is drawn.  A machine that crashes forgets
everything; one that loses its connection connects again, opens its producers under their old identity and sends again
what was not settled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from raybroker.client.producer.producer_state import ProducerState, SendBatch, Shared
from raybroker.core.outcome import Refused
from raybroker.model.blocks.block import Block
from raybroker.model.blocks.large_block import LargeBlock
from tests.simulation.history import SENDS, value_of
from tests.simulation.large import Download, Upload
from tests.simulation.messages import body_of, header_of, priority_of, unit_of
from tests.simulation.network import Connection
from tests.simulation.plan import MS, ProducerPlan

if TYPE_CHECKING:
    from tests.simulation.surroundings import Surroundings

Reply = Callable[[Any, "str | None"], None]


@cache
def shared_of(persistent: bool, priority: int, ttl_ms: int, delay_ms: int) -> Shared:
    """One object for equal attributes, as a producer has it."""
    return Shared(persistent, priority, ttl_ms, delay_ms)


class Machine:
    """``asked``: acknowledgements under way, (connection, request) → what they are about; ``asked_many``: commits."""

    def __init__(self, world: Surroundings, client_id: str | None = None) -> None:
        self.world = world
        self.client_id = client_id
        self.name = f"c{world.next_number()}"
        """The id of its connection, which reconnects do not change."""
        self.connection: Connection | None = None
        self.producers: list[SimProducer] = []
        self.consumers: list[Any] = []
        self.transactors: list[Any] = []
        self.asked: dict[tuple[int, int], Any] = {}
        self.asked_many: dict[tuple[int, int], list[Any]] = {}
        self._requests: dict[tuple[int, int], Reply] = {}
        self._next_request = 1
        self._next_handle = 1
        self._next_body = 1
        self._downloads: dict[int, Download] = {}
        """Of the handles to which a large message comes."""
        self._connecting = False
        self.ready = False
        """The host knows this client."""

    @property
    def endpoints(self) -> list[Any]:
        """Transactors come last: what they use has been told before."""
        return [*self.producers, *self.consumers, *self.transactors]

    # ---- connecting ------------------------------------------------------------------------------------------------

    def connect_later(self) -> None:
        if not self._connecting:
            self._connecting = True
            self.world.loop.after(self.world.rng.randrange(self.world.rng.choice((MS, 20 * MS))), self._connect)

    def _connect(self) -> None:
        self._connecting = False
        if self.connection is not None:
            return
        if self.world.host is None or self.world.host.failure is not None:
            self.connect_later()
            return
        self.connection = Connection(self.world, self)
        self.world.connections.append(self.connection)
        self._next_handle = 1
        self.ready = False
        connection = self.connection

        def welcome(result: Any, code: str | None) -> None:
            if connection is not self.connection:
                return
            if code is not None:  # The host has not noticed yet that our last life is over.
                connection.lose()
                return
            self.ready = True
            connection.pieces = bool(result.get("pieces"))
            for endpoint in self.endpoints:
                endpoint.open()

        self.call("hello", {"client_id": self.client_id, "connection": self.name}, welcome)

    def lost(self, connection: Connection) -> None:
        """The connection is known to be gone."""
        if connection is self.connection:
            self.connection = None
            self._downloads.clear()
            for endpoint in self.endpoints:
                endpoint.lost()
            self.connect_later()

    def crash(self) -> None:
        """The machine starts again with nothing."""
        self.name = f"c{self.world.next_number()}"
        if self.connection is not None:
            self.connection.machine_dies()
            self.connection = None
            self._downloads.clear()
        for endpoint in self.endpoints:
            endpoint.crash()
        self.connect_later()

    def new_handle(self) -> int:
        self._next_handle += 1
        return self._next_handle - 1

    def new_body(self) -> int:
        self._next_body += 1
        return self._next_body - 1

    def call(self, op: str, args: dict[str, Any], reply: Reply, asked: list[Any] | None = None) -> None:
        """A request on the present connection; without one it is dropped, as its answer would be."""
        connection = self.connection
        if connection is None:
            return
        request = self.next_request()
        self._requests[connection.number, request] = reply
        if asked:
            self.asked_many[connection.number, request] = asked
        connection.up(connection.session.call, request, op, args)

    def next_request(self) -> int:
        self._next_request += 1
        return self._next_request - 1

    def pause(self) -> None:
        """The machine's buffers are full for a while, or the application stops its connection."""
        connection = self.connection
        if connection is None:
            return
        if self.world.rng.random() < 0.5:
            connection.up(connection.session.flow, False)
            self.world.loop.after(
                self.world.rng.randrange(100 * MS), lambda: connection.up(connection.session.flow, True)
            )
        else:
            self.call("stop", {}, lambda result, code: None)
            self.world.loop.after(
                self.world.rng.randrange(100 * MS), lambda: self.call("start", {}, lambda result, code: None)
            )

    # ---- what arrives ----------------------------------------------------------------------------------------------

    def on_reply(self, connection: Connection, request: int, result: Any, code: str | None) -> None:
        reply = self._requests.pop((connection.number, request), None)
        if reply is not None:
            reply(result, code)

    def on_sent(self, connection: Connection, handle: int, first_seq: int, refused: Sequence[Refused]) -> None:
        for producer in self.producers:
            if producer.handle == handle and connection is self.connection:
                producer.settled(first_seq, refused)

    def on_deliver(self, connection: Connection, handle: int, epoch: int, tag: int, attempt: int, block: Block) -> None:
        self._to_consumer(connection, handle, "delivered", epoch, tag, attempt, block)

    def on_deliver_large(
        self, connection: Connection, handle: int, epoch: int, tag: int, attempt: int, ordinal: int, block: LargeBlock
    ) -> None:
        """Nobody sees it, or what comes after it, before its body is here."""
        if connection is not self.connection:
            return
        download = self._downloads.get(handle)
        if download is not None:
            download.behind(download.begin, epoch, tag, attempt, ordinal, block)
            return

        def delivered(*args: Any) -> None:
            self._tell_consumer(handle, "delivered", *args)

        over = partial(self._downloads.pop, handle, None)
        download = self._downloads[handle] = Download(self, handle, delivered, over)
        download.begin(epoch, tag, attempt, ordinal, block)

    def deliver_now(self, handle: int) -> None:
        """What came for a consumer is void."""
        download = self._downloads.get(handle)
        if download is not None:
            download.deliver_now()

    def _to_consumer(self, connection: Connection, handle: int, method: str, *args: Any) -> None:
        if connection is not self.connection:
            return
        download = self._downloads.get(handle)
        if download is not None:
            download.behind(self._tell_consumer, handle, method, *args)
        else:
            self._tell_consumer(handle, method, *args)

    def _tell_consumer(self, handle: int, method: str, *args: Any) -> None:
        if method == "delivered" and self.connection is not None:
            self.connection.came(args[-1].count)
        for consumer in self.consumers:
            if consumer.handle == handle:
                getattr(consumer, method)(*args)

    def on_drained(self, connection: Connection, handle: int, epoch: int, unused: int | None) -> None:
        """Credit is void; None: there is something to be had."""
        self._to_consumer(connection, handle, "drained", epoch, unused)

    def on_withdrawn(self, connection: Connection, handle: int, epoch: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Deliveries are void."""
        self._to_consumer(connection, handle, "withdrawn", epoch, ranges)

    def on_recall(self, connection: Connection, handle: int, epoch: int, ranges: Sequence[tuple[int, int]]) -> None:
        """What was not begun is asked back."""
        self._to_consumer(connection, handle, "recall", epoch, ranges)

    def on_mark(self, connection: Connection, handle: int, epoch: int, tag: int, fence: int) -> None:
        """What is to be known of the delivery that comes next."""
        self._to_consumer(connection, handle, "mark", epoch, tag, fence)

    def on_checkpoint(self, connection: Connection, handle: int, epoch: int, tag: int, state: bytes) -> None:
        """What a consumer before has said of the message that comes next."""
        self._to_consumer(connection, handle, "checkpointed", epoch, tag, state)

    def on_acked(self, connection: Connection, request: int, unknown: int) -> None:
        """What was confirmed is recorded where the host says so."""

    def on_promoted(self, connection: Connection, handle: int) -> None:
        """A backup is active now; its messages speak for themselves."""

    def on_gate(self, connection: Connection, handle: int, state: str) -> None:
        """A producer is told to wait, or to go on."""
        for producer in self.producers:
            if producer.handle == handle and connection is self.connection:
                producer.gate = state
                producer.flush()

    def on_event(self, connection: Connection, name: str, data: dict[str, object]) -> None:
        if name == "credit":  # These producers have windows of their own.
            return
        assert name in ("destroyed", "halted"), name
        assert name == "destroyed" or self.world.disk.damaged, "a destination halts, and nothing is damaged"
        if connection is self.connection:
            for endpoint in (*self.producers, *self.consumers):
                if endpoint.handle == data["handle"]:
                    endpoint.destroyed(halted=name == "halted")


class SimProducer:
    """Sends batches of its own size at its own pace, and settles them."""

    def __init__(self, world: Surroundings, machine: Machine, plan: ProducerPlan) -> None:
        self.world = world
        self.machine = machine
        self.plan = plan
        self.kind, self.name = world.plan.destinations[plan.destination].key
        self.where = 0 if self.kind == "queue" else SENDS
        self.gate = "open"
        self.handle = 0
        self.open_now = False
        self.generation = 0
        self.produced = 0
        self.state = self._identity()
        self._uploading: tuple[Connection, int] | None = None
        """Where a body goes, and its number; nothing else of the producer leaves meanwhile."""
        self._sized: ProducerState | None = None
        world.loop.after(world.rng.randrange(30 * MS), self.work)

    def _identity(self) -> ProducerState:
        producer = self.world.next_number()
        self.world.body_bytes_max[producer] = self.plan.body_bytes_max
        self.world.with_headers[producer] = self.plan.headers
        self.world.units_of[producer] = self.plan.units
        return ProducerState(producer)

    @property
    def settled_all(self) -> bool:
        return not self.state.held_bytes

    # ---- the connection --------------------------------------------------------------------------------------------

    def open(self) -> None:
        if self.machine.connection is None or not self.machine.ready:
            return
        handle = self.handle = self.machine.new_handle()
        self.generation += 1
        self.gate = "open"
        args = {
            "handle": handle,
            "name": self.name,
            "type": self.kind,
            "producer": self.state.producer,
            "generation": self.generation,
        }

        def opened(result: Any, code: str | None) -> None:
            if handle != self.handle:
                return
            if code is not None:
                self.handle = 0
                if code == "resource_allocation" and self.world.healing:
                    self._give_up()
                else:
                    self.world.opening_failed(self.plan.destination, code, self._open_again)
                return
            self.open_now = True
            self.state.send_again()
            self.flush()

        self.machine.call("open_producer", args, opened)

    def lost(self) -> None:
        self.open_now = False
        self.handle = 0
        self._uploading = None

    def crash(self) -> None:
        self.lost()
        self._give_up()

    def destroyed(self, *, halted: bool) -> None:
        """The destination is gone; or it has stopped, and what was sent may be stored."""
        if self.open_now:
            self.machine.call("close_producer", {"handle": self.handle}, lambda result, code: None)
        self.lost()
        if not halted:
            self._give_up()
        self.world.loop.after(20 * MS, self._open_again)

    def _open_again(self) -> None:
        if not self.handle:
            self.open()

    def _give_up(self) -> None:
        for batch in self.state.abandon():
            self._log("info", batch, 0, batch.count)
        self.state = self._identity()

    # ---- messages --------------------------------------------------------------------------------------------------

    def work(self) -> None:
        """Make a batch and write what can be written."""
        rng, plan = self.world.rng, self.plan
        if self.world.healing or self.produced >= plan.total:
            return
        self.world.loop.after(int(plan.interval * 2 * rng.random()) + 1, self.work)
        if len(self.state.unsettled) + len(self.state.ready) >= plan.window:
            return
        count = 1 + int(rng.random() * 2 * plan.mean_batch)
        self._put(count, persistent=rng.random() < plan.persistent_share)
        self.flush()

    def _put(self, count: int, *, persistent: bool) -> None:
        state = self.state
        first = value_of(state.producer, state.next_seq)
        self.produced += count
        self.world.log(0, "invoke", "enqueue", first, count, persistent=persistent, where=self.where)
        for value in range(first, first + count):
            self.add(value, persistent=persistent)

    def add(self, value: int, *, persistent: bool) -> None:
        """One message into the open batch."""
        rng, plan = self.world.rng, self.plan
        ttl_ms = rng.choice(plan.ttls_ms) if len(plan.ttls_ms) > 1 else plan.ttls_ms[0]
        delay_ms = rng.choice(plan.delays_ms) if len(plan.delays_ms) > 1 else plan.delays_ms[0]
        priority = priority_of(value, plan.spread)
        in_unit = unit_of(value, plan.units) is not None
        if delay_ms or in_unit or plan.spread > 1:
            self.world.watch.classes[value] = None if delay_ms or in_unit else priority
        self.state.add(
            0,
            body_of(value, plan.body_bytes_max),
            header_of(value, plan.units, properties=plan.headers),
            shared_of(persistent, priority, ttl_ms, delay_ms),
            self.world.clock.now_ms(),
            None,
        )

    def flush(self) -> None:
        connection, state = self.machine.connection, self.state
        if not self.open_now or connection is None or (self.gate != "open" and not self.world.healing):
            return
        state.seal()
        while state.ready and (self._uploading is None or self._uploading[0] is not connection):
            floor = state.floor
            batch = state.next_ready()
            assert batch is not None
            if batch.large is not None and connection.pieces:
                self._upload(connection, batch)
                return
            connection.send(self.handle, floor, batch.block)
            if not batch.shared.persistent:
                self._log("info", batch, 0, batch.count)

    def _upload(self, connection: Connection, batch: SendBatch) -> None:
        """Send the body, and then its message, if it is still wanted."""
        number, handle, state = self.machine.new_body(), self.handle, self.state
        self._uploading = connection, number
        self.world.watch.seen["large sends"] += 1

        def done(code: str | None) -> None:
            if connection is not self.machine.connection:
                return
            if self._uploading == (connection, number):  # Not one of an earlier identity, which goes on beside ours.
                self._uploading = None
            wanted = batch in state.unsettled and state is self.state and handle == self.handle
            if not wanted or code is not None:
                self.machine.call("drop_body", {"body": number}, lambda result, code: None)
            if code is not None and wanted:
                self._not_taken(batch)
            elif wanted:
                self._sent_large(connection, batch, number)
            self.flush()

        Upload(self.machine, number, (self.kind, self.name), batch, done)

    def _sent_large(self, connection: Connection, batch: SendBatch, number: int) -> None:
        assert batch.large is not None
        batch.large.sent = True
        connection.send_large(self.handle, batch.floor, number, batch.data)
        if not self.state.awaits(batch):
            self.state.settle_block(batch.first_seq)
            self._log("info", batch, 0, batch.count)

    def _not_taken(self, batch: SendBatch) -> None:
        """The host refused the body; the message may be there from before."""
        assert batch.large is not None
        self.state.settle_block(batch.first_seq)
        self._log("info" if batch.large.sent else "fail", batch, 0, batch.count)

    def settled(self, first_seq: int, refused: Sequence[Refused]) -> None:
        batch = self.state.settle_block(first_seq)
        if batch is None:
            return
        at = 0
        for row in refused:
            self._log("ok", batch, at, row.start)
            self._log("fail", batch, row.start, row.end)
            at = row.end
        self._log("ok", batch, at, batch.count)

    def _log(self, type: str, batch: SendBatch, start: int, end: int) -> None:
        if start < end:
            first = value_of(self.state.producer, batch.first_seq + start)
            self.world.log(0, type, "enqueue", first, end - start, persistent=batch.shared.persistent, where=self.where)
