"""Heartbeats of a broker and its hosts, as datagrams on one socket each; actor calls are made when none comes.

A call of an actor costs both sides many times what a datagram costs, and a quiet cluster has little else to do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from raybroker.actors import runtime
from raybroker.actors.hosts.heartbeat_replies import PONG
from raybroker.actors.hosts.host_watch import HostWatch
from raybroker.broker.cluster.heartbeats import Beats, Place
from raybroker.broker.remote_broker import RemotePeers
from raybroker.cluster.member_messages import Envelope
from raybroker.model.errors import BrokerError
from raybroker.model.settings.setting import PortRange
from raybroker.system.clock import SystemClock
from raybroker.transport.datagrams import Address, Datagrams, Number

LEARN_TIMEOUT_S: Final = 2.0
"""How long another broker may take to say where it listens."""
BEAT: Final = b"b"
"""First byte of a beat; see ``heartbeat_replies`` for the others."""

log = logging.getLogger("raybroker.broker")


class Signs:
    """The signs of life of the broker ``name``. ``token``: the key of its datagrams and of those of its hosts;
    ``receive`` takes the beats of other brokers."""

    beats: Beats

    def __init__(self, name: str, token: bytes, receive: Callable[[Envelope], None]) -> None:
        self._watch: HostWatch | None = None
        self._receive = receive
        self._clock = SystemClock()
        self.datagrams = Datagrams(name, token, self._clock.now_ms(), self._receive_sign)

    def follow(self, peers: RemotePeers) -> None:
        """Begin to send beats to the other brokers, which are asked where they listen."""

        async def learn(broker: str) -> Place | None:
            found = await peers.call_broker(broker, "listens", {}, timeout_s=LEARN_TIMEOUT_S)
            return None if found is None else (str(found[0]), int(found[1]), bytes(found[2]))

        self.beats = Beats(self.datagrams, self._clock, learn, self._receive, prefix=BEAT)

    def watching(self, hosts: Callable[[], list[Any]], hung_ms: int, log_of: Callable[[str], Path]) -> HostWatch:
        """Who looks after the hosts, see HostWatch; it has to be run."""
        self._watch = HostWatch(hosts, hung_ms, self.datagrams, log_of)
        return self._watch

    async def open(self, ports: PortRange) -> None:
        """Listen; a broker that cannot works without, and says so."""
        try:
            await self.datagrams.open(runtime.node_ip(), ports)
        except (BrokerError, OSError) as error:
            log.warning("broker %s sends signs of life in actor calls: %s", self.datagrams.name, error)

    def place(self) -> Place | None:
        """Return where other brokers send their beats."""
        address = self.datagrams.address
        return None if address is None else (*address, self.datagrams.key)

    def _receive_sign(self, sender: str, number: Number, _: Address, payload: bytes) -> None:
        kind, rest = payload[:1], payload[1:]
        if kind == BEAT:
            self.beats.receive_beat(sender, number, rest)
        elif kind == PONG and self._watch is not None:
            self._watch.pong(sender, rest)

    def close(self) -> None:
        self.beats.close()
        self.datagrams.close()
