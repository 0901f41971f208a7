"""The native connection service: our protocol on TCP, between sessions of the engine and clients' links.

A connection that has not shown the cluster's token within the handshake time is closed; at most ``connections_max`` are
open at a time.  While the committer or the pager is overloaded nothing more is read from anybody who sends.

A client that does not read its answers is not read from either: of the frames that have come the rest is put off until
it has read what waits for it, and after ``raybroker.service.unread_timeout`` it is closed.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from raybroker.content.headers import require_no_sender
from raybroker.engine.ports import Clock, Committer, Peer, Refused
from raybroker.engine.sessions.session import Session, revoke
from raybroker.model import histogram
from raybroker.model.blocks.block import Block, count_of
from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import (
    BrokerError,
    ConnectionEndedError,
    ConnectionLostError,
    ProtocolError,
    ResourceAllocationError,
    SecurityError,
    from_code,
)
from raybroker.model.histogram import Histogram
from raybroker.model.settings.setting import PortRange
from raybroker.model.settings.settings import ConfigView
from raybroker.services.clients.ended_clients import EndedClients
from raybroker.services.gateways.unfinished import Unfinished
from raybroker.services.listening.bounds import Bounds
from raybroker.services.listening.secure_port import SecurePort
from raybroker.services.native.guest import TRAFFIC, Guest, Traffic
from raybroker.services.native.spinning import LoopSpin
from raybroker.services.native.turn import Turn
from raybroker.system.supervision import Supervisor
from raybroker.transport.link import Link
from raybroker.transport.ports import bound_socket
from raybroker.transport.spin import Spin, processors, spin_ns
from raybroker.transport.unread import UnreadWatch
from raybroker.wire.native import frames as wire
from raybroker.wire.native.connection import Native
from raybroker.wire.native.receive_buffers import FrameBuffers

LOG: Final = logging.getLogger("raybroker.host")
SHOWN_CHARS_MAX: Final = 100
"""So much of a client id or a connection's id is in a line of the log."""
REFUSALS_TOLD_EVERY_S: Final = 60.0
"""Least time between two lines about connections that were refused; the one that comes tells how many there were."""
END_TIMEOUT_S: Final = 5.0
"""How long a client may take to read why it is ended."""
LATE_S: Final = 0.5
"""A loop that is later than this was busy, or the process was stopped: answers to pings have come and are not read."""
READ_S: Final = 0.5
"""Time to read them."""
BACKLOG: Final = 512
"""Connections the system may hold that are not accepted yet."""


TOLD: Final = ("platform", "pid", "unrestricted")
"""What clients say of their process, for listings, and whether others may have their client id."""


class NativeConnection:
    """One client: implements the engine's Peer on a Link. ``guest``: of one that came in through a connection service,
    what it may do."""

    def __init__(self, service: NativeService, guest: Guest | None = None) -> None:
        self._service = service
        self._session: Session | None = None
        self._sent: list[tuple[int, int, int]] = []
        self._deadline: asyncio.TimerHandle | None = None
        self._heard = True
        self.peer = ""
        """The client's address."""
        self._name = ""
        """Who the client is, once it is in."""
        self.told: dict[str, str] = {}
        """What it has said of itself, by the keys of TOLD."""
        self._pinged = 0
        self._meter_max = 0
        self._metered = 0
        """Messages sent since the client last said go on; at ``_meter_max`` the connection waits for it."""
        self._go = True
        """The client takes deliveries: it has not said that it is full."""
        self._paused = False
        self._unread = False
        """So many bytes wait for the client to read them that nothing is read from it."""
        self._put_off: list[wire.Frame] = []
        """Frames that came before that was seen."""
        self._carried = [0, 0, 0, 0, 0]
        """Of a guest: messages in and out, their bytes in and out, packets in."""
        self.guest = guest
        self.link = Link(
            Native(
                token=service.token,
                buffers=service.buffers,
                accepts=guest.accepts if guest is not None else None,
                grown=self._grown if guest is not None else None,
            ),
            on_frames=self._frames,
            on_lost=self._lost,
            on_writable=self._writable,
            on_made=self._made,
        )
        self._watch = UnreadWatch(service.limits.unread_s, self.link, self._give_up)

    def _made(self, link: Link) -> None:
        self.peer = link.peer_name
        self._service.opened(self)
        if link.has_socket:
            self._watch.start()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._service.handshake_s, self._check_handshake)

    def _grown(self, size: int) -> None:
        """A large frame of a guest comes, or has come."""
        if size:
            self._service.unfinished.grows(self, size)
        else:
            self._service.unfinished.ends(self)

    def _check_handshake(self) -> None:
        if self._session is None:
            self._service.connection_refused(self, "it has not shown the cluster's token in time")
            self.link.abort()

    def _frames(self, frames: list[wire.Frame]) -> None:
        self._heard = True
        service = self._service
        count = len(frames)
        service.packets_in += count
        guest = self.guest
        if guest is not None:
            self._carried[4] += count
        if self._session is None:
            self._session = service.open_session(self)
        session, turn = self._session, service.turn
        alone = turn.latest is self.link and count == 1
        turn.latest, turn.under_way, turn.handling = self.link, True, True
        coming = iter(frames)
        try:
            for frame in coming:
                if isinstance(frame, wire.SendFrame):
                    if guest is not None:
                        self._came(frame.block)
                    session.send(frame.handle, frame.floor, frame.block)
                elif isinstance(frame, wire.AckFrame):
                    session.acknowledge(frame.handle, frame.epoch, frame.request, frame.ranges)
                elif isinstance(frame, wire.CreditFrame):
                    session.credit(frame.handle, frame.epoch, frame.credit)
                elif isinstance(frame, wire.DrainFrame):
                    session.drain(frame.handle, frame.epoch, frame.credit)
                elif isinstance(frame, wire.SendTxFrame):
                    if guest is not None:
                        self._came(frame.block)
                    session.send(frame.handle, frame.floor, frame.block, frame.txn)
                elif isinstance(frame, wire.SendLargeFrame):
                    if guest is not None:
                        self._require_no_sender(frame.block)
                    session.send_large(frame.handle, frame.floor, frame.body, frame.block, frame.txn)
                elif isinstance(frame, wire.SettleFrame):
                    session.settle_deliveries(*frame)
                elif isinstance(frame, (wire.BegunFrame, wire.TakenFrame)):
                    (session.begun if isinstance(frame, wire.BegunFrame) else session.taken)(*frame)
                elif isinstance(frame, wire.RecalledFrame):
                    session.recalled(*frame)
                elif isinstance(frame, wire.ExtendFrame):
                    session.extend(*frame)
                elif isinstance(frame, wire.CallFrame):
                    if guest is not None and not self._allowed(guest, frame):
                        continue
                    if frame.op == "hello":
                        self._require_welcome(frame)
                        self._meter_max = _flow_count(frame.args)
                    session.call(frame.request, frame.op, frame.args)
                    # Again, behind the call: the session may have refused the client id.
                    if frame.op == "hello":
                        self._said_hello(session, frame.args)
                    if self.link.congested:
                        # This takes the rest out of the loop: nobody reads the answers for now.
                        self._put_off += coming
                elif isinstance(frame, wire.FlowFrame):
                    self._go = frame.go
                    session.flow(frame.go)
                    if frame.go:
                        self._metered = 0
                        session.writable()
                elif isinstance(frame, wire.PingFrame):
                    self.link.write(wire.pong(frame.nonce))
                elif isinstance(frame, wire.PongFrame):
                    self._answered(frame.nonce)
                elif isinstance(frame, wire.SendTracedFrame):
                    if guest is not None:
                        self._came(frame.block)
                    send = partial(session.send, frame.handle, frame.floor, frame.block)
                    turn.traces.carry_out(self, frame, turn.committer, service.now_ns, send)
        finally:
            turn.finish_frames(alone=alone)
        if turn.spin is not None and self.link.has_socket:
            turn.spin.frames_handled(alone=alone)
        if self.link.congested and not self._unread:
            self._unread = True
            self.link.pause_reading()
        for part in service.bounded:
            if part.overloaded:
                service.hold(self)

    def _allowed(self, guest: Guest, frame: wire.CallFrame) -> bool:
        """Whether a guest may ask that; one that may not is told, and so is one for whom that cannot be found out."""
        try:
            guest.check(frame.op, frame.args)
        except BrokerError as error:
            self.failed(frame.request, error.code, str(error))
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            self.failed(frame.request, ProtocolError.code, f"request {frame.op!r:.40} is malformed: {error!r:.200}")
        except Exception as error:  # a client that is told nothing comes again and again
            LOG.exception("whether %s may ask for %s could not be found out", self.peer, frame.op)
            self.failed(frame.request, BrokerError.code, f"the broker failed: {error!r:.200}")
        else:
            return True
        return False

    def _require_welcome(self, hello: wire.CallFrame) -> None:
        """Raises ConnectionEndedError for a client that an administrator has ended, and tells it so."""
        why = self._service.ended.why(str(hello.args.get("connection", "")))
        if why is not None and self.guest is None:
            self._service.connection_refused(self, why)
            self.failed(hello.request, ConnectionEndedError.code, why)
            raise ConnectionEndedError(why)

    def _said_hello(self, session: Session, args: dict[str, Any]) -> None:
        """The client has said who it is; it is in, or its client id was refused."""
        client, name = session.client, _shown(args.get("client_id"), args.get("connection"))
        if (client.client_id, client.connection) != (args.get("client_id"), str(args.get("connection", ""))):
            self._service.connection_refused(self, f"{name} cannot have its client id now")
        elif not self._name:
            self._name = name
            self.told = {key: str(args[key])[:SHOWN_CHARS_MAX] for key in TOLD if key in args}
            LOG.info("[B1065] %s connected from %s", name, self.peer)

    @property
    def identity(self) -> tuple[str, str]:
        """(id of the client's connection, its client id), once it is in; "" for none."""
        if self._session is None or not self._name:
            return "", ""
        client = self._session.client
        return client.connection, client.client_id or ""

    def revoke(self, refused: Callable[[str, str, str], str]) -> None:
        """End what the client may not use any more; see engine.sessions.session."""
        if self._session is not None:
            revoke(self._session, refused)

    @property
    def consumer_count(self) -> int:
        return len(self._session.consumers) if self._session is not None else 0

    def consumer_keys(self) -> list[str]:
        """One a consumer of a destination, the same for all connections of its client."""
        consumers = self._session.consumers.values() if self._session is not None else ()
        return [f"{one.consumer or one.number} {one.destination.kind} {one.destination.name}" for one in consumers]

    def counts(self) -> dict[str, Any]:
        """How many producers and consumers it has, of which destinations, and the ids of the consumers."""
        session = self._session
        producers = list(session.producers.values()) if session else []
        consumers = list(session.consumers.values()) if session else []
        return {
            "producers": len(producers),
            "consumers": len(consumers),
            "destinations": sorted(
                {f"{one.destination.kind} {one.destination.name}" for one in (*producers, *consumers)}
            ),
            "consumer_ids": [one.number for one in consumers],
        }

    def _came(self, block: Block) -> None:
        """A guest has sent messages."""
        if block.headers_bytes:
            self._require_no_sender(block)
        self._carried[0] += block.count
        self._carried[2] += len(block.view)

    def _require_no_sender(self, block: Block) -> None:
        """End a guest that has made messages that nobody may send; raises SecurityError."""
        try:
            require_no_sender(block)
        except SecurityError as error:
            self.end_for_good(str(error))  # Without the reason it would come again, and send them again.
            raise

    def traffic(self) -> Traffic:
        """What it has carried, of a guest."""
        messages_in, messages_out, sent_bytes, given_bytes, packets_in = self._carried
        bytes_in, packets_out, bytes_out = self.link.traffic()
        counts = (messages_in, messages_out, sent_bytes, given_bytes, packets_in, packets_out, bytes_in, bytes_out)
        return dict(zip(TRAFFIC, counts, strict=True))

    def pause(self, paused: bool) -> None:
        """Neither read from it nor deliver to it, until that ends."""
        if self._session is not None:
            self._session.flow(self._go and not paused)
        self._paused = paused
        self.read_or_not(held=self in self._service.held)

    def read_or_not(self, *, held: bool) -> None:
        """Read from it, unless it is paused or ``held``, or does not read itself."""
        if held or self._paused or self._unread:
            self.link.pause_reading()
        else:
            self.link.resume_reading()

    def ping(self) -> None:
        """Close a connection that said nothing since the last ping, unless nobody listened."""
        if not self.link.reads:
            self._heard = True
            return
        if not self._heard:
            self.link.close(ProtocolError("it has not answered a ping within imq.ping.interval"))
            self.link.abort()  # What waits to be sent would never go, and what the client holds would wait as long.
            return
        self._heard = False
        self.measure()

    def measure(self) -> None:
        """Send a ping; its answer shows how long the way is."""
        self._pinged = self._service.now_ns()
        self.link.write(wire.ping(self._pinged))

    def _answered(self, nonce: int) -> None:
        if nonce == self._pinged != 0:
            self._service.round_trips.observe((self._service.now_ns() - nonce) / 1e9)
            self._pinged = 0

    def _writable(self) -> None:
        if self._session is not None:
            self._session.writable()
        if self._unread and not self.link.congested:
            self._unread = False
            frames, self._put_off = self._put_off, []
            if frames:
                self.link.take_frames(frames)
            # To handle what was put off may have filled the link again.
            if not self._unread:
                self.read_or_not(held=self in self._service.held)

    def _give_up(self, why: str) -> None:
        """It does not read."""
        if not self._name:
            self._service.connection_refused(self, why)
        self.link.close(ResourceAllocationError(why))
        self.link.abort()

    def _lost(self, error: BrokerError | None) -> None:
        self._watch.stop()
        self._service.turn.traces.drop_connection(self)
        self._put_off.clear()
        if self._deadline is not None:
            self._deadline.cancel()
        self._service.closed(self)
        if self._session is None and isinstance(error, SecurityError | ProtocolError):
            self._service.connection_refused(self, str(error))
        if self._name:
            LOG.info("[B1066] %s from %s is gone%s", self._name, self.peer, f": {error}" if error else "")
        if self._session is not None:
            self._session.close()

    # ---- the engine's Peer -----------------------------------------------------------------------------------------

    def reply(self, request: int, result: object) -> None:
        self.link.write(wire.reply(request, result))

    def failed(self, request: int, code: str, text: str) -> None:
        self.link.write(wire.failed(request, code, text))

    def sent(self, handle: int, first_seq: int, count: int, refused: Sequence[Refused]) -> None:
        if refused:
            self._service.turn.traces.confirm(self, handle, first_seq, 0)
            self.link.write(wire.refused(handle, first_seq, count, list(refused)))
            return
        if not self._sent:
            turn = self._service.turn
            if turn.under_way:
                turn.confirming.append(self._flush_sent)
            else:
                turn.confirms(self._flush_sent)
        self._sent.append((handle, first_seq, count))

    def _flush_sent(self) -> None:
        """Write the confirmations that are due, in one frame."""
        rows, self._sent = self._sent, []
        if self._service.turn.traces.open:
            self._tell_traced(rows)
        self.link.write(wire.sent(rows))

    def _tell_traced(self, rows: Sequence[tuple[int, int, int]]) -> None:
        """Tell of the sends among them whose way is measured; the confirmations follow in the same write."""
        now_ns = self._service.now_ns()
        for handle, first_seq, _ in rows:
            traced = self._service.turn.traces.confirm(self, handle, first_seq, now_ns)
            if traced is not None:
                self.link.write(wire.traced(traced))

    def deliver(self, handle: int, epoch: int, tag: int, attempt: int, block: Sequence[Buffer]) -> None:
        if self._meter_max > 0 or self.guest is not None:
            count = count_of(block[0])
            self._metered += count
            self._carried[1] += count
            self._carried[3] += sum(map(len, block))
        self.link.write(*wire.deliver(handle, epoch, tag, attempt, block))

    def deliver_large(self, handle: int, epoch: int, tag: int, attempt: int, ordinal: int, front: Buffer) -> None:
        if self._meter_max > 0:
            self._metered += 1
        self.link.write(*wire.deliver_large(handle, epoch, tag, attempt, ordinal, front))

    def acked(self, request: int, unknown: int) -> None:
        self.link.write(wire.acked(request, unknown))

    def released(self, handle: int, request: int, next_tag: int) -> None:
        self.link.write(wire.released(handle, request, next_tag))

    def drained(self, handle: int, epoch: int, unused: int) -> None:
        self.link.write(wire.drained(handle, epoch, unused))

    def ready(self, handle: int, epoch: int) -> None:
        self.link.write(wire.ready(handle, epoch))

    def withdrawn(self, handle: int, epoch: int, ranges: Sequence[tuple[int, int]]) -> None:
        self.link.write(wire.withdrawn(handle, epoch, ranges))

    def recall(self, handle: int, epoch: int, ranges: Sequence[tuple[int, int]]) -> None:
        self.link.write(wire.recall(handle, epoch, ranges))

    def mark(self, handle: int, epoch: int, tag: int, fence: int) -> None:
        self.link.write(wire.mark(handle, epoch, tag, fence))

    def checkpoint(self, handle: int, epoch: int, tag: int, state: bytes) -> None:
        self.link.write(wire.checkpoint(handle, epoch, tag, state))

    def promoted(self, handle: int) -> None:
        self.link.write(wire.promoted(handle))

    def gate(self, handle: int, state: str, until_ms: int) -> None:
        self.link.write(wire.event("gate", {"handle": handle, "state": state, "until_ms": until_ms}))

    def event(self, name: str, data: dict[str, object]) -> None:
        self.link.write(wire.event(name, data))

    def congested(self) -> bool:
        return self.link.congested or 0 < self._meter_max <= self._metered

    def full(self) -> bool:
        return self.link.congested

    def room(self) -> int:
        return max(1, self._meter_max - self._metered) if self._meter_max > 0 else 0

    def close(self, code: str, text: str) -> None:
        self.link.write(wire.event("closing", {"code": code, "text": text}))
        self.link.close(from_code(code, text))

    def end_for_good(self, why: str) -> None:
        """End it for good, and tell the client why; one that does not read that is cut off."""
        asyncio.get_running_loop().call_later(END_TIMEOUT_S, self.link.abort)
        self.close(ConnectionEndedError.code, why)


class Bounded(Protocol):
    """A part of the host that says when it gets more than it can put away."""

    overloaded: bool


class RefusalLog:
    """Lines for the log about clients that were not let in: the first at once, then one in a while with a count."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._now_ns = monotonic_ns
        self._told_ns = monotonic_ns() - int(REFUSALS_TOLD_EVERY_S * 1e9)
        self._untold = 0

    def count_refusal(self, peer: str, why: str) -> None:
        """One more, from that address."""
        self._untold += 1
        now_ns = self._now_ns()
        if now_ns - self._told_ns >= REFUSALS_TOLD_EVERY_S * 1e9:
            others = f" ({self._untold} were refused since the line before)" if self._untold > 1 else ""
            LOG.warning("[B2067] a client from %s was refused: %s%s", peer, why, others)
            self._told_ns, self._untold = now_ns, 0


class NativeService:
    """Listens for clients of one host. ``open_session``: the host's; ``token``: what clients must show."""

    def __init__(
        self, open_session: Callable[[Peer], Session], clock: Clock, config: ConfigView, *, token: bytes
    ) -> None:
        self.open_session = open_session
        self.now_ns = clock.monotonic_ns
        self.token = token
        self.buffers = FrameBuffers()
        self.handshake_s: float = config["raybroker.handshake.timeout_ms"] / 1000
        self.limits = Bounds.from_config(config)
        name = "raybroker.service.frames_bytes_max"
        self.unfinished: Unfinished[NativeConnection] = Unfinished(config[name], _give_up_frame, name)
        self.connections_max: int = config["raybroker.connections_max"]
        self.connections: set[NativeConnection] = set()
        self.ended = EndedClients()
        self.address: tuple[str, int] | None = None
        self.bounded: tuple[Bounded, ...] = ()
        """What may get more than it can put away."""
        self.turn = Turn()
        """Of whatever is under way on the service's loop."""
        most_ns = spin_ns(config["raybroker.spin"], processors())
        if most_ns:
            self.turn.spin = LoopSpin(Spin(most_ns), clock.monotonic_ns)
        self.held: set[NativeConnection] = set()
        """Nothing is read from them until those parts have caught up."""
        self._server: asyncio.Server | SecurePort | None = None
        self.round_trips = Histogram(histogram.SECONDS)
        self.packets_in = self.opened_count = self.refused_count = 0
        self._refusals = RefusalLog(clock.monotonic_ns)
        self._lost = [0, 0, 0]
        """Bytes in, packets out and bytes out of connections that have ended."""
        self._ping_s: int = config["imq.ping.interval"]
        self._loops = Supervisor("the data socket")
        self._pings = False

    async def listen(
        self, ip: str, ports: PortRange, tls: Callable[[], ssl.SSLContext] | None = None
    ) -> tuple[str, int]:
        """Bind the first free port of the range; raises ConfigError when there is none.

        ``tls``: the context for the next connection, where all have TLS.
        """
        bound = bound_socket(ip, ports, "in raybroker.data.ports=", backlog=BACKLOG)
        host, port = bound.getsockname()[:2]
        if tls is None:
            self._server = await asyncio.get_running_loop().create_server(self.accept, sock=bound, backlog=BACKLOG)
        else:
            self._server = SecurePort(bound, tls, self.accept, handshake_s=self.handshake_s, refused=self.refused_at)
        self.address = host, port
        return self.address

    def accept(self, guest: Guest | None = None) -> Link:
        """A connection's own end, for a pipe within the process, or of a socket that a connection service gives."""
        return NativeConnection(self, guest).link

    def use(self, committer: Committer, *others: Bounded) -> None:
        self.bounded = committer, *others
        self.turn.committer = committer

    def hold(self, connection: NativeConnection) -> None:
        self.held.add(connection)
        connection.read_or_not(held=True)

    def relieved(self) -> None:
        """A part that was overloaded has caught up."""
        if any(part.overloaded for part in self.bounded):
            return
        held, self.held = self.held, set()
        for connection in held:
            connection.read_or_not(held=False)

    def opened(self, connection: NativeConnection) -> None:
        if self.ended.everybody:
            connection.link.close(ConnectionLostError(self.ended.everybody))
            return
        self.connections.add(connection)
        self.opened_count += 1
        if not self._pings and self._ping_s > 0 and connection.link.has_socket:
            self._pings = True
            self._loops.keep("pings of clients", self._ping_all)
        if len(self.connections) > self.connections_max:
            limit = f"raybroker.connections_max={self.connections_max}"
            self.connection_refused(connection, f"{limit} connections are open; close some or raise it")
            connection.link.close(ResourceAllocationError(f"too many connections: {limit}"))

    def connection_refused(self, connection: NativeConnection, why: str) -> None:
        """A client was not let in."""
        self.refused_at(connection.peer, why)

    def refused_at(self, peer: str, why: str) -> None:
        """A client at that address was not let in."""
        self.refused_count += 1
        self._refusals.count_refusal(peer, why)

    def closed(self, connection: NativeConnection) -> None:
        if connection in self.connections:
            if connection.guest is not None:
                connection.guest.gone(connection.traffic())
            self._lost = [a + b for a, b in zip(self._lost, connection.link.traffic(), strict=True)]
        self.connections.discard(connection)
        self.unfinished.ends(connection)
        self.held.discard(connection)
        if self.turn.latest is connection.link:
            self.turn.latest = None

    def measure(self) -> None:
        """Ping every client to see how long the way is."""
        for connection in self.connections:
            if connection.link.authenticated and not connection.link.congested:
                connection.measure()

    def metrics(self) -> dict[str, Any]:
        """See the catalogue of metrics."""
        traffic = [self._lost, *(connection.link.traffic() for connection in self.connections)]
        spin = self.turn.spin.spin if self.turn.spin is not None else Spin(0)
        bytes_in, packets_out, bytes_out = (sum(column) for column in zip(*traffic, strict=True))
        return {
            "connections": len(self.connections),
            "connections_opened_total": self.opened_count,
            "connections_refused_total": self.refused_count,
            "congested_connections": sum(connection.link.congested for connection in self.connections),
            "held_connections": len(self.held),
            "packets_in_total": self.packets_in,
            "packets_out_total": packets_out,
            "packet_in_bytes_total": bytes_in,
            "packet_out_bytes_total": bytes_out,
            "spin_seconds_total": spin.spent_ns / 1e9,
            "spins_total": spin.count,
            "paid_spins_total": spin.paid,
            "round_trip_seconds": self.round_trips.as_row(),
        }

    async def _ping_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + self._ping_s
            await asyncio.sleep(self._ping_s)
            if loop.time() - due_s > LATE_S:
                await asyncio.sleep(READ_S)
            for connection in list(self.connections):
                connection.ping()

    def retire(self, why: str) -> int:
        """End every connection, and those that come: clients look for what they use where it is by then. Returns how
        many have not ended yet; one that does not read is cut off."""
        self.ended.everybody = why
        loop = asyncio.get_running_loop()
        for connection in list(self.connections):
            connection.link.close(ConnectionLostError(why))
            loop.call_later(END_TIMEOUT_S, connection.link.abort)
        return len(self.connections)

    def stop_listening(self) -> None:
        """Whoever comes from now on is refused by the system."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        """Stop listening and end every connection."""
        self._loops.close()
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.link.close()


def _give_up_frame(connection: NativeConnection, why: str) -> None:
    """It is told why, once its transport is not in the middle of a read: it may be the one whose frame grows now."""
    asyncio.get_running_loop().call_soon(connection.close, ResourceAllocationError.code, why)


def _flow_count(args: dict[str, Any]) -> int:
    """The client's imqConnectionFlowCount; raises ProtocolError for what is no number."""
    count = args.get("flow_count", 0)
    if not isinstance(count, int):
        raise ProtocolError(f"flow_count={count!r}; it is a whole number")
    return count


def _shown(client_id: object, connection: object) -> str:
    """A client for the log; what it says of itself stays on one line and short."""
    parts = [f"client {client_id!r:.{SHOWN_CHARS_MAX}}"] if client_id else []
    return ", ".join([*parts, f"connection {str(connection)!r:.{SHOWN_CHARS_MAX}}"])
