"""The handshake with other brokers: greetings, heartbeats, and agreement on the master.

A broker talks only to instances that it has greeted, since greetings compare the properties that must be equal.  A
broker that is
not heard is greeted again every ``retry_ms``, one that was lost every ``down_ms``, and at once when it speaks.
"""

from __future__ import annotations

from collections.abc import Callable

from raybroker.cluster import compatibility
from raybroker.cluster.member_messages import Beat, Greet, Refuse
from raybroker.cluster.member_state import INTEGRATED, MemberContext
from raybroker.cluster.membership import HEARD, BrokerState, Moved
from raybroker.cluster.saved_record import life_frame, master_frame
from raybroker.cluster.term import Leadership


class Peers:
    """``adopt`` is called with another broker's claim of leadership that supersedes ours."""

    def __init__(self, life: MemberContext, adopt: Callable[[Leadership], None]) -> None:
        self._life = life
        self._adopt = adopt
        self._beat_ms = 0
        self._greeted: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        """Broker → why the two refuse each other; shown while this broker waits."""

    # ---- time

    def tick(self) -> None:
        life = self._life
        self._excuse(life.now_ms - self.next_ms())
        for moved in life.membership.find_silent(life.now_ms):
            self.tell(moved)
        for row in life.membership.broker_rows():
            if row.name != life.name and (row.state not in HEARD or row.name not in life.matched):
                lost = row.incarnation and row.state is BrokerState.DOWN
                pause_ms = life.settings.down_ms if lost else life.settings.retry_ms
                if life.now_ms >= self._greeted.get(row.name, -pause_ms) + pause_ms:
                    self.greet(row.name)
        if life.now_ms >= self._beat_ms:
            self.beat()

    def _excuse(self, late_ms: int) -> None:
        """Excuse the others where this broker stood still (a stopped process, a machine without memory): they were not
        silent."""
        life = self._life
        if self._beat_ms == 0 or late_ms < life.settings.heartbeat_ms:
            return
        life.membership.excuse(late_ms, life.now_ms)
        if late_ms >= life.settings.suspect_ms:
            life.note(
                f"broker {life.name} stood still for {late_ms} ms; the silence of others is not counted for that time",
                warning=True,
            )

    def next_ms(self) -> int:
        """Return when :meth:`tick` has something to do at the latest."""
        return min(self._beat_ms, self._life.membership.next_ms() or self._beat_ms)

    def beat(self) -> None:
        """Send a heartbeat to all."""
        self._beat_ms = self._life.now_ms + self._life.settings.heartbeat_ms
        self._life.send_all(self._said())

    def _said(self) -> Beat:
        life = self._life
        return Beat(life.claim, life.durable, life.membership.joined, life.state in INTEGRATED)

    def greet(self, name: str, *, answer: bool = True) -> None:
        life = self._life
        self._greeted[name] = life.now_ms
        life.send(name, Greet(self.properties(), life.claim, life.membership.joined, answer))

    def properties(self) -> dict[str, object]:
        life = self._life
        # Whether there is a table, not which: each broker may have another way to it. Two tables show by their records.
        table = {compatibility.TABLE: "set"} if life.settings.table else {}
        return {
            **life.settings.properties,
            compatibility.CLUSTER: life.cluster,
            compatibility.MODE: not life.settings.master,
            **table,
        }

    def tell(self, moved: Moved | None) -> None:
        """A line for the log about a change of the view."""
        if moved is None:
            return
        if moved.restarted and moved.before in HEARD:
            self._life.note(f"broker {moved.name} is another instance now")
        if moved.before is not moved.after:
            lost = moved.after not in HEARD
            self._life.note(f"broker {moved.name} is {moved.after} (was {moved.before})", warning=lost)

    # ---- what is received

    def greeted(self, sender: str, incarnation: int, message: Greet) -> None:
        life = self._life
        text = self._fault(sender, message)
        if text:
            life.matched.pop(sender, None)
            if self.refused.get(sender) != text:
                life.note(text, warning=True)
            self.refused[sender] = text
            life.send(sender, Refuse(text))
            return
        self.refused.pop(sender, None)
        if not life.cluster:
            life.cluster = str(message.properties[compatibility.CLUSTER])
            if life.cluster:
                life.persist([life_frame(life.incarnation, life.cluster)])
        life.matched[sender] = incarnation
        if sender == life.claim.master and life.instance != (sender, incarnation):
            life.instance = sender, incarnation
            life.persist([master_frame(sender, incarnation)])
        if life.held is not None and life.held[0] == sender:
            go_on = life.held[1]
            life.held = None
            go_on()
        version = message.properties.get(compatibility.VERSION, 0)
        self.heard(sender, incarnation, joined=message.joined, version=version if isinstance(version, int) else 0)
        if message.answer:
            self.greet(sender, answer=False)
        life.send(sender, self._said())

    def _fault(self, sender: str, message: Greet) -> str:
        life = self._life
        found = compatibility.differences(
            self.properties(),
            message.properties,
            me_master=life.is_master,
            they_master=message.claim.master == sender,
        )
        if found:
            return compatibility.refusal(life.name, sender, found)
        return self.learn(message.claim, sender)

    def heard(
        self, sender: str, incarnation: int, *, joined: int, version: int = 0, number: int = 0, operating: bool = False
    ) -> None:
        life = self._life
        self.tell(
            life.membership.heard(
                sender,
                incarnation,
                life.now_ms,
                joined=joined,
                operating=operating or joined > 0,
                version=version,
                number=number,
            )
        )

    def beaten(self, sender: str, incarnation: int, message: Beat) -> bool:
        """A heartbeat; False when the two cannot agree on the master."""
        text = self.learn(message.claim, sender)
        if text:
            self._life.matched.pop(sender, None)
            self.refused[sender] = text
            self._life.note(text, warning=True)
            self._life.send(sender, Refuse(text))
            return False
        self.heard(
            sender,
            incarnation,
            joined=message.joined,
            operating=message.operating,
            number=message.position.number,
        )
        return True

    def strange(self, sender: str) -> None:
        """Greet an instance that speaks and was not greeted, at most once a heartbeat."""
        life = self._life
        if life.now_ms >= self._greeted.get(sender, 0) + life.settings.heartbeat_ms or sender not in self._greeted:
            self.greet(sender)

    def refuse(self, sender: str, message: Refuse) -> None:
        """Another broker refuses this one."""
        life = self._life
        life.matched.pop(sender, None)
        if self.refused.get(sender) != message.text:
            life.note(f"refused by broker {sender}: {message.text}", warning=True)
        self.refused[sender] = message.text

    def learn(self, claim: Leadership, sender: str) -> str:
        """Take another broker's claim about the master; returns a text when the two claims contradict each other."""
        life = self._life
        if life.settings.table and life.claim.record and claim.record and life.claim.conflicts(claim):
            return (
                f"brokers {life.name} and {sender} have different tables: records {life.claim.record[:8]} and"
                f" {claim.record[:8]} of one term; set {compatibility.TABLE} so that all brokers use the same database"
            )
        if not life.settings.master:
            return ""
        if life.claim.conflicts(claim):
            return (
                f"brokers {life.name} and {sender} disagree on the master in term {claim.term}:"
                f" {_shown(life.claim)} and {_shown(claim)}; start brokers of one cluster with the same"
                " imq.cluster.masterbroker, or restore a backup of the configuration record on the right one"
            )
        if claim.beats(life.claim):
            self._adopt(claim)
        return ""


def _shown(claim: Leadership) -> str:
    return f"{claim.master} (record {claim.record[:8]})" if claim.record else claim.master
