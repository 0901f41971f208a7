"""Clients with transactions: local ones, ones that prepare and are decided, and branches of distributed ones (XA).

One unit of work follows the other.  A client that loses its connection while it commits asks the host what became of it
and believes the answer; what is prepared is decided by the world's own log of decisions, again and again until the host
has heard it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from raybroker.core.outcome import Refused
from tests.simulation.clients import Machine, SimProducer
from tests.simulation.consumers import SimConsumer, tag_ranges
from tests.simulation.history import SEQ_BITS, value_of
from tests.simulation.plan import MS, TransactorPlan

if TYPE_CHECKING:
    from tests.simulation.surroundings import Surroundings

MESSAGES_MAX = 30
"""What a unit of work consumes from one consumer at most."""
Told = tuple[int, int, list[int]]


class Unit:
    """One unit of work. ``sent``: value → (persistent, where, destination); ``consumed``: what is acknowledged."""

    def __init__(self, number: int, key: bytes) -> None:
        self.number = number
        self.key = key
        self.sent: dict[int, tuple[bool, int, int]] = {}
        self.consumed: list[Told] = []
        self.wheres: list[int] = []
        self.outcome = ""


class TxProducer(SimProducer):
    """Sends for a transactor, in its unit of work; nothing is sent again."""

    def work(self) -> None:
        """Only the transactor says when."""

    def lost(self) -> None:
        super().lost()
        self.state.abandon()

    def _give_up(self) -> None:
        self.state.abandon()

    def send_in(self, unit: Unit, count: int) -> None:
        connection, state, world = self.machine.connection, self.state, self.world
        if not self.open_now or connection is None:
            return
        persistent = world.rng.random() < self.plan.persistent_share
        first = value_of(state.producer, state.next_seq)
        world.log(0, "invoke", "enqueue", first, count, persistent=persistent, where=self.where)
        for value in range(first, first + count):
            unit.sent[value] = persistent, self.where, self.plan.destination
            self.add(value, persistent=persistent)
            world.watch.classes[value] = None
        state.seal()
        while (batch := state.next_ready()) is not None:
            connection.send(self.handle, state.floor, batch.block, unit.number)

    def destroyed(self, *, halted: bool) -> None:
        """Nobody can say what becomes of what was sent there."""
        super().destroyed(halted=halted)
        for transactor in self.machine.transactors:
            transactor.forget(self.state.producer)

    def flush(self) -> None:
        """There is never anything left."""

    def settled(self, first_seq: int, refused: Sequence[Refused]) -> None:
        """What was refused is not in the transaction."""
        self.state.settle_block(first_seq)
        first = value_of(self.state.producer, first_seq)
        for transactor in self.machine.transactors:
            for row in refused:
                for value in range(first + row.start, first + row.end):
                    transactor.refused(value)


class TxConsumer(SimConsumer):
    """Leaves acknowledging to its transactor."""

    _kept: tuple[Any, ...] = ()

    def _acknowledge_some(self, taken: int) -> None:
        if self.world.healing:
            super()._acknowledge_some(taken)

    def keep_last(self) -> list[Any] | None:
        """Go on with what it got last: a checkpoint for the commit, and that is not acknowledged."""
        if not self.plan.checkpoints or not self.unacked or not self.epoch:
            return None
        self._kept = (*self._kept, self.unacked.pop())
        tag, value, _ = self._kept[-1]
        self._steps += 1
        return [self.handle, self.epoch, tag, b"%d:%d" % (value, self._steps)]

    def go_on(self) -> None:
        """The commit is on its way: what was kept is in hand again, if it has not gone back meanwhile."""
        self.unacked += self._kept
        self._kept = ()

    def take(self) -> tuple[list[Any], list[Told], int] | None:
        """What was consumed, as acknowledgements for the host, what they are about, and where that was."""
        items, self.unacked = self.unacked[:MESSAGES_MAX], self.unacked[MESSAGES_MAX:]
        if not items or not self.epoch:
            return None
        watch = self.world.watch
        values = [value for _, value, _ in items]
        ranges = tag_ranges(sorted(tag for tag, _, _ in items))
        return [self.handle, self.epoch, ranges], [(*watch.queue_of[self.epoch], values)], watch.where[self.epoch]


class SimTransactor:
    """``unit``: the open one; ``step``: "" | working | staging | committing | preparing | deciding | doubt."""

    def __init__(self, world: Surroundings, machine: Machine, plan: TransactorPlan) -> None:
        self.world = world
        self.machine = machine
        self.plan = plan
        self.producers = [TxProducer(world, machine, p) for p in plan.sends_to]
        self.consumers = [TxConsumer(world, machine, p) for p in plan.takes_from]
        machine.producers += self.producers
        machine.consumers += self.consumers
        world.transactional.update(p.state.producer for p in self.producers)
        self.prefix = world.next_number()
        """What the keys of one session have in common."""
        self.unit: Unit | None = None
        self.step = ""
        self.done = 0
        self._later(self.begin)

    def _later(self, run: Any) -> None:
        self.world.loop.after(int(self.plan.interval * 2 * self.world.rng.random()) + 1, run)

    # ---- the connection --------------------------------------------------------------------------------------------

    def open(self) -> None:
        if self.step == "doubt":
            self._ask()
        elif self.step == "deciding":
            self._decide()

    def lost(self) -> None:
        if self.step in ("working", "staging"):
            self._ended("rolled_back")
        elif self.step == "preparing":
            self.step = "deciding"
        elif self.step == "committing":
            self.step = "doubt"

    def crash(self) -> None:
        """It forgets its unit; what is prepared is left to the log of decisions."""
        self.prefix = self.world.next_number()
        if self.unit is not None:
            self._ended("rolled_back" if self.step in ("working", "staging") else "unknown")

    # ---- a unit of work --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        world, rng = self.world, self.world.rng
        if world.healing or self.done >= self.plan.units:
            return
        if self.unit is not None or self.machine.connection is None:
            self._later(self.begin)
            return
        self.done += 1
        number = world.next_number()
        key = self.prefix.to_bytes(8, "big") + number.to_bytes(8, "big")
        self.unit = unit = Unit(number, b"xid:" + key if self.plan.kind == "xa" else key)
        world.units.append(unit)
        world.active.add(unit.key)
        self.step = "working"
        if self.plan.kind == "xa":
            self.machine.call("txn_begin", {"txn": number, "key": unit.key}, lambda result, code: None)
        self._send(unit)
        if rng.random() < 0.05:
            world.loop.after(900 * MS + rng.randrange(300 * MS), self._send, unit)
            world.loop.after(1200 * MS, self._end, unit)
        else:
            self._later(lambda: self._end(unit))

    def _send(self, unit: Unit) -> None:
        rng = self.world.rng
        if unit is not self.unit or self.step != "working" or not self.producers:
            return
        for _ in range(1 + rng.randrange(self.plan.size)):
            rng.choice(self.producers).send_in(unit, 1 + rng.randrange(3))

    def refused(self, value: int) -> None:
        for unit in (self.unit,) if self.unit is not None else ():
            if value in unit.sent:
                persistent, where, _ = unit.sent.pop(value)
                self.world.log(0, "fail", "enqueue", value, 1, persistent=persistent, where=where)

    def forget(self, producer: int) -> None:
        unit = self.unit
        for value in [v for v in unit.sent if v >> SEQ_BITS == producer] if unit is not None else ():
            assert unit is not None
            persistent, where, _ = unit.sent.pop(value)
            self.world.log(0, "info", "enqueue", value, 1, persistent=persistent, where=where)

    def _end(self, unit: Unit) -> None:
        if unit is not self.unit or self.step != "working":
            return
        rng = self.world.rng
        if rng.random() < self.plan.rollback_share and not self.world.healing:
            acks = self._take(unit) if rng.random() < 0.5 else []
            if acks:
                self.machine.call("txn_stage", {"txn": unit.number, "acks": acks}, lambda result, code: None)
            self._roll_back(unit)
            return
        kept = [consumer.keep_last() for consumer in self.consumers] if self._keeps() else []
        acks = self._take(unit)
        args: dict[str, Any] = {"txn": unit.number, "key": unit.key, "acks": acks}
        if states := [state for state in kept if state is not None]:
            args["checkpoints"] = states
            for consumer in self.consumers:
                consumer.go_on()
        if self.plan.kind == "xa":
            args["acks"] = []
            self.step = "staging"
            self.machine.call("txn_stage", {"txn": unit.number, "acks": acks}, self._then(unit, self._end_staged, args))
        else:
            self._end_staged(unit, args)

    def _keeps(self) -> bool:
        """Whether this unit of work leaves checkpoints; a unit that is prepared cannot."""
        if self.plan.kind != "local" or not any(consumer.plan.checkpoints for consumer in self.consumers):
            return False
        return not self.world.healing and self.world.rng.random() < 0.8

    def _end_staged(self, unit: Unit, args: dict[str, Any], result: Any = None) -> None:
        if self.plan.kind == "local" or self.world.rng.random() < 0.3:
            self.step = "committing"
            self.machine.call("txn_commit", args, self._then(unit, self._committed, args), unit.consumed)
        else:
            self.step = "preparing"
            args |= {"coordinator": "elsewhere"}
            self.machine.call("txn_prepare", args, self._then(unit, self._prepared, args))

    def _then(self, unit: Unit, go_on: Any, args: dict[str, Any]) -> Any:
        """Go on with the answer to a call, unless it was refused: then everything is rolled back."""

        def answered(result: Any, code: str | None) -> None:
            if unit is not self.unit or self.step in ("doubt", "deciding"):
                return
            if code is None:
                go_on(unit, args, result)
            elif code in ("store", "illegal_state"):
                self._ended("unknown")
            elif code == "transaction_rolled_back":
                self._ended("rolled_back")
            else:
                self._roll_back(unit)

        return answered

    def _take(self, unit: Unit) -> list[Any]:
        acks = []
        for consumer in self.consumers:
            taken = consumer.take()
            if taken is not None:
                acks.append(taken[0])
                unit.consumed += taken[1]
                unit.wheres.append(taken[2])
                self._log_consumed("ok", taken[1][0], taken[2])
        return acks

    def _log_consumed(self, kind: str, told: Told, where: int) -> None:
        for value in told[2]:
            self.world.log(0, kind, "consume", value, 1, where=where)

    # ---- how it ends -----------------------------------------------------------------------------------------------

    def _roll_back(self, unit: Unit) -> None:
        """Whatever the host answers, it is certain: this client will not commit."""
        self.machine.call("txn_rollback", {"txn": unit.number}, lambda result, code: None)
        if self.plan.kind == "xa":
            args = {"key": unit.key, "commit": False}
            self.machine.call("txn_decide", args, lambda result, code: None)
        self._ended("rolled_back")

    def _committed(self, unit: Unit, args: dict[str, Any], result: Any) -> None:
        self._ended("committed")

    def _prepared(self, unit: Unit, args: dict[str, Any], result: Any) -> None:
        if result["vote"] == "read_only":
            idle = not unit.sent and not unit.consumed
            assert idle or self.world.destroyed, "a transaction with something to decide voted read_only"
            self._ended("committed")
            return
        self.world.decisions[unit.key] = self.world.rng.random() < 0.7
        self.step = "deciding"
        luck = self.world.rng.random()
        if luck < 0.4:
            self._decide()
        elif luck < 0.9:
            delay = self.world.rng.randrange(300 * MS)
            self.world.loop.after(delay, lambda: self._decide() if unit is self.unit else None)
        else:
            self._ended("unknown")

    def _decide(self) -> None:
        """Say how it ended, until the host has heard it; what was never decided is rolled back."""
        unit = self.unit
        assert unit is not None
        commit = self.world.decisions.setdefault(unit.key, False)

        def heard(result: Any, code: str | None) -> None:
            if unit is not self.unit:
                return
            if code is not None:
                assert code == "store", f"a decision is refused: {code}"
                self.world.loop.after(20 * MS, lambda: self._decide() if unit is self.unit else None)
                return
            self.machine.call("txn_forget", {"key": unit.key}, lambda result, code: None)
            self._ended("committed" if commit else "rolled_back")

        asked = unit.consumed if commit else None
        self.machine.call("txn_decide", {"key": unit.key, "commit": commit}, heard, asked)

    def _ask(self) -> None:
        """The connection was lost during a commit."""
        unit = self.unit
        assert unit is not None

        def told(result: Any, code: str | None) -> None:
            if unit is not self.unit:
                return
            if code is not None or result["state"] == "started":
                self.world.loop.after(20 * MS, lambda: self._ask() if unit is self.unit else None)
                return
            self._ended("committed" if result["state"] == "committed" else "rolled_back")

        self.machine.call("txn_outcome", {"key": unit.key}, told)

    def _ended(self, outcome: str) -> None:
        unit, self.unit, self.step = self.unit, None, ""
        assert unit is not None
        unit.outcome = outcome
        self.world.active.discard(unit.key)
        for producer in self.producers:
            producer.state.abandon()
        word = {"committed": "ok", "rolled_back": "fail", "unknown": "info"}[outcome]
        for value, (persistent, where, _) in unit.sent.items():
            known = word if persistent or word != "ok" else "info"
            self.world.log(0, known, "enqueue", value, 1, persistent=persistent, where=where)
        if outcome == "rolled_back":
            for told, where in zip(unit.consumed, unit.wheres, strict=True):
                self._log_consumed("fail", told, where)
            for consumer in self.consumers:
                consumer.release()
        self._later(self.begin)

    @property
    def settled(self) -> bool:
        return self.unit is None
