"""A cluster without a master: every broker broadcasts its changes to all that run.

Changes of different brokers are not ordered: a broker that cannot make a change, because another came first, skips it
with a warning, and a broker that is down misses it for good.  For development.
"""

from __future__ import annotations

from dataclasses import dataclass

from raybroker.cluster.events import Answer, Propose
from raybroker.cluster.follower import recorded
from raybroker.cluster.member_messages import Tell, Told
from raybroker.cluster.member_state import MemberContext
from raybroker.cluster.record_application import Applier
from raybroker.cluster.saved_record import entry_frame
from raybroker.model.errors import BrokerError, RequestTimeoutError


@dataclass(slots=True)
class Telling:
    """A change of this broker; ``waiting``: the instances that have not confirmed it yet; ``kept``: it is on disk here,
    so that the applier says when it is carried out, or that it is late.

    A broker that is another instance by now was down, and may have the change on its disk.
    """

    event: Propose
    waiting: dict[str, int]
    until_ms: int
    again_ms: int
    kept: bool = False
    applied: bool = False


class Heard:
    """Sequence numbers received from one instance, and which of them are on disk here."""

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.floor = 0
        self.above: set[int] = set()
        self.writing: set[int] = set()

    def add(self, sequence: int) -> bool:
        """False when it came before."""
        if sequence <= self.floor or sequence in self.above:
            return False
        self.above.add(sequence)
        while self.floor + 1 in self.above:
            self.floor += 1
            self.above.discard(self.floor)
        return True


class Teller:
    """The part of a member machine that is active while there is no master."""

    def __init__(self, life: MemberContext, applier: Applier) -> None:
        self._life = life
        self._applier = applier
        self._sequence = 0
        self._telling: dict[int, Telling] = {}
        self._heard: dict[str, Heard] = {}

    def propose(self, event: Propose) -> None:
        life = self._life
        try:
            entry = life.record.propose(event.change)
        except BrokerError as error:
            life.out.append(Answer(event.request, error))
            return
        self._sequence += 1
        sequence = self._sequence
        telling = Telling(event, self._instances(), life.now_ms + life.settings.request_ms, 0)
        self._telling[sequence] = telling

        def durable() -> None:
            life.entries_durable([entry])
            telling.kept = True
            self._say(sequence, telling)
            self._applier.when(entry.number, lambda failure: self._applied(sequence, failure))

        life.persist([entry_frame(entry)], durable)
        life.compress_when_long()

    def _instances(self) -> dict[str, int]:
        return {peer: self._life.matched[peer] for peer in self._life.peers()}

    def _say(self, sequence: int, telling: Telling) -> None:
        life = self._life
        telling.again_ms = life.now_ms + life.settings.heartbeat_ms
        for peer in sorted(telling.waiting):
            life.send(peer, Tell(sequence, telling.event.change))

    def _applied(self, sequence: int, failure: str) -> None:
        telling = self._telling.get(sequence)
        if telling is None:
            return
        telling.applied = True
        if failure:
            del self._telling[sequence]
            self._life.out.append(Answer(telling.event.request, recorded(failure, 0)))
        else:
            self._finish(sequence, telling)

    def _finish(self, sequence: int, telling: Telling) -> None:
        if telling.applied and not telling.waiting:
            del self._telling[sequence]
            self._life.out.append(Answer(telling.event.request))

    def tell(self, sender: str, incarnation: int, message: Tell) -> None:
        """Another broker changed something."""
        life = self._life
        heard = self._heard.get(sender)
        if heard is None or heard.incarnation != incarnation:
            heard = self._heard[sender] = Heard(incarnation)
        sequence = message.sequence
        if not heard.add(sequence):
            if sequence not in heard.writing:
                life.send(sender, Told(sequence))
            return
        try:
            entry = life.record.propose(message.change)
        except BrokerError as error:
            life.note(f"a change of broker {sender} is not made here: {message.change}: {error}", warning=True)
            life.send(sender, Told(sequence))
            return
        heard.writing.add(sequence)

        def durable() -> None:
            heard.writing.discard(sequence)
            life.entries_durable([entry])
            life.send(sender, Told(sequence))

        life.persist([entry_frame(entry)], durable)
        life.compress_when_long()

    def told(self, sender: str, message: Told) -> None:
        telling = self._telling.get(message.sequence)
        if telling is not None:
            telling.waiting.pop(sender, None)
            self._finish(message.sequence, telling)

    def tick(self) -> None:
        life = self._life
        now = self._instances()
        for sequence, telling in list(self._telling.items()):
            telling.waiting = {peer: number for peer, number in telling.waiting.items() if now.get(peer) == number}
            if life.now_ms >= telling.until_ms and (telling.waiting or not telling.kept):
                del self._telling[sequence]
                names = ", ".join(sorted(telling.waiting)) or "this broker"
                text = f"the change '{telling.event.change}' was made; {names} did not confirm it in time"
                life.out.append(Answer(telling.event.request, RequestTimeoutError(text)))
                continue
            self._finish(sequence, telling)
            if telling.again_ms and telling.waiting and life.now_ms >= telling.again_ms:
                self._say(sequence, telling)
