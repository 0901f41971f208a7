"""Two engines that send to each other in bytes cut anywhere: a seed is a run.

What holds at the end: every delivery that was sent and not given up arrives once, whole and in its order; what both
ends call unsettled is the same; nothing is held; neither end finds a fault in the other.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from raybroker.wire.amqp.connection import ConnectionEndpoint
from raybroker.wire.amqp.events import (
    AmqpEvent,
    ConnectionOpened,
    CreditGiven,
    DeliveryReceived,
    DispositionReceived,
    HeaderReceived,
    LinkAttached,
    LinkDetached,
    LinkDrained,
    ProtocolFailed,
    SessionBegun,
    SessionEnded,
    SessionUnblocked,
)
from raybroker.wire.amqp.limits import AmqpLimits
from raybroker.wire.amqp.links import ReceivingLink, SendingLink
from raybroker.wire.amqp.performatives import ACCEPTED, RELEASED, AmqpModified, AmqpRejected, AmqpSource, AmqpTarget
from raybroker.wire.amqp.sessions import SessionEndpoint

STEPS = 400
LINKS_MAX = 6
STATES = (ACCEPTED, RELEASED, AmqpRejected(), AmqpModified(True))


class End:
    """One end, and what it has seen: by name of a link what it sent, what came, and what was told of it."""

    def __init__(self, name: str, connection: ConnectionEndpoint, chance: random.Random, ending: float) -> None:
        self.ending = ending
        """How likely a step ends a link or a session."""
        self.name = name
        self.connection = connection
        self.chance = chance
        self.out = bytearray()
        """Bytes that are under way to the other end."""
        self.sessions: list[SessionEndpoint] = []
        self.links: dict[str, SendingLink | ReceivingLink] = {}
        self.sent: dict[str, list[bytes]] = {}
        self.came: dict[str, list[bytes]] = {}
        self.unanswered: dict[str, list[int]] = {}
        self.told: dict[str, list[Any]] = {}
        self.draining: set[str] = set()
        self.closed: set[str] = set()
        """Links that one side has ended: what is under way of them is lost."""
        self.numbers = 0

    def flush(self) -> None:
        for part in self.connection.take_output():
            self.out += part

    def hear(self, data: bytes) -> None:
        for event in self.connection.receive_data(data):
            self.handle(event)

    def handle(self, event: AmqpEvent) -> None:
        assert not isinstance(event, ProtocolFailed), event
        if isinstance(event, ConnectionOpened):
            if self.name == "s":
                self.connection.send_open("s")
        elif isinstance(event, SessionBegun):
            if event.session not in self.sessions:
                self.sessions.append(event.session)
                event.session.send_begin()
        elif isinstance(event, LinkAttached):
            link = event.link
            if link.name not in self.links:
                link.send_attach(event.attach.source, event.attach.target)
                self.know(link)
        elif isinstance(event, LinkDetached):
            assert event.by_peer, event
            event.link.send_detach()
            self.end(event.link.name)
        elif isinstance(event, SessionEnded):
            assert event.by_peer, event
            event.session.send_end()
            self.end_session(event.session)
        elif isinstance(event, DeliveryReceived):
            name = event.link.name
            self.came[name].append(event.payload)
            if not event.settled:
                self.unanswered[name].append(event.delivery_id)
        elif isinstance(event, DispositionReceived):
            self.told[event.link.name] += [(one.context, event.state) for one in event.deliveries]
        elif isinstance(event, CreditGiven):
            if event.drain:
                event.link.drained()
        elif isinstance(event, LinkDrained):
            assert event.link.credit == 0
            self.draining.discard(event.link.name)
        else:
            assert isinstance(event, HeaderReceived | SessionUnblocked), event

    def end(self, name: str) -> None:
        self.closed.add(name)
        self.draining.discard(name)

    def end_session(self, session: SessionEndpoint) -> None:
        for name, link in self.links.items():
            if link.lane is session.lane:
                self.end(name)
        if session in self.sessions:
            self.sessions.remove(session)

    def know(self, link: Any) -> None:
        self.links[link.name] = link
        for known in (self.sent, self.came, self.unanswered, self.told):
            known[link.name] = []

    def act(self) -> None:
        """One thing that an application might do."""
        chance = self.chance
        if not self.sessions or (len(self.sessions) < 3 and chance.random() < 0.02):
            self.sessions.append(self.connection.begin_session())
        if len(self.links) - len(self.closed) < LINKS_MAX and chance.random() < 0.1:
            session, self.numbers = chance.choice(self.sessions), self.numbers + 1
            attach = chance.choice([session.attach_sender, session.attach_receiver])
            self.know(attach(f"{self.name}{self.numbers}", AmqpSource("a"), AmqpTarget("b")))
        live = [link for name, link in self.links.items() if name not in self.closed]
        if not live:
            return
        link = chance.choice(live)
        if chance.random() < self.ending and link.peer is not None:
            if chance.random() < 0.8:
                link.send_detach(closed=chance.random() < 0.8)
                self.end(link.name)
            else:
                session = next(one for one in self.sessions if one.lane is link.lane)
                if session.peer is not None:
                    session.send_end()
                    self.end_session(session)
        elif isinstance(link, SendingLink):
            self.send(link)
        elif chance.random() < 0.5:
            if link.name not in self.draining and link.peer is not None:
                drain = chance.random() < 0.2
                link.grant(chance.randrange(6), drain=drain)
                if drain:
                    self.draining.add(link.name)
        else:
            self.answer(link, chance.randrange(4))

    def send(self, link: SendingLink) -> None:
        for _ in range(self.chance.randrange(3)):
            if link.credit and link.peer is not None:
                number = len(self.sent[link.name])
                size = self.chance.choice([0, 1, 100, 600, 5000])
                body = f"{link.name} {number} ".encode() + b"x" * size
                self.sent[link.name].append(body)
                link.send([body[:3], memoryview(body)[3:]], number, settled=self.chance.random() < 0.3)

    def answer(self, link: ReceivingLink, count: int) -> None:
        waiting = self.unanswered[link.name]
        some = sorted(self.chance.sample(waiting, min(count, len(waiting))))
        self.unanswered[link.name] = [number for number in waiting if number not in some]
        link.settle_deliveries(some, self.chance.choice(STATES))


def limits(chance: random.Random) -> AmqpLimits:
    return AmqpLimits(frame_bytes_max=chance.choice([512, 1024, 70_000]), incoming_window=chance.choice([1, 2, 7, 100]))


def carry(one: End, other: End, most: int) -> bool:
    """Some bytes arrive; whether any did."""
    one.flush()
    size = min(most, len(one.out))
    data = bytes(one.out[:size])
    del one.out[:size]
    other.hear(data)
    return bool(size)


@pytest.mark.parametrize("seed", range(40))
def test_what_is_sent_arrives_whatever_the_pieces(seed: int) -> None:
    chance = random.Random(seed)
    ending = 0.0 if seed % 2 else 0.05
    server = End("s", ConnectionEndpoint.listening(limits(chance), ()), chance, ending)
    client = End("c", ConnectionEndpoint.connecting(limits(chance), login=False), chance, ending)
    client.connection.send_open("c")
    ends = [server, client]
    for _ in range(STEPS):
        one = chance.choice(ends)
        if chance.random() < 0.5 and one.connection.peer is not None:
            one.act()
        carry(one, ends[one is server], chance.choice([1, 7, 100, 3000, 1 << 20]))
    for _ in range(3):  # Everything arrives, and what it lets go.
        while carry(server, client, 1 << 20) | carry(client, server, 1 << 20):
            pass
        for end in ends:
            for link in end.links.values():
                if isinstance(link, ReceivingLink):
                    end.answer(link, 1 << 20)
    check(server, client)


def check(server: End, client: End) -> None:
    """What holds when nothing is under way."""
    closed = server.closed | client.closed
    for sender, receiver in ((server, client), (client, server)):
        assert not sender.draining
        for name, link in sender.links.items():
            if name in closed and isinstance(link, SendingLink):
                assert receiver.came.get(name, []) == sender.sent[name][: len(receiver.came.get(name, []))]
            elif isinstance(link, SendingLink):
                other = receiver.links[name]
                assert receiver.came[name] == sender.sent[name]
                assert link.delivery_count == other.delivery_count
                assert link.credit == other.credit
                assert not [one for one in link.lane.sent.values() if one.link is link]
                assert other not in other.lane.received.values()
                told = [number for number, _ in sender.told[name]]
                assert sorted(told) == sorted(set(told))
        assert sender.connection.incomplete_bytes == 0
        assert not any(session.blocked for session in sender.sessions)
        assert len(sender.connection.sessions) == len(receiver.connection.sessions)
        live = [session for session in sender.connection.sessions if not session.lane.ended]
        assert sum(len(session.links) for session in live) == len(sender.links.keys() - closed)
