"""The database that has the shared table: it goes down, answers late or never, and does late what nobody waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raybroker.cluster import events as ev
from raybroker.cluster.backup import load
from raybroker.cluster.change_record import ChangeRecord
from raybroker.cluster.record_rows import entry_of
from raybroker.cluster.term import FIRST_TERM, restored_term
from tests.simulation_control.plan import MS, S
from tests.simulation_control.table import MemoryTable

if TYPE_CHECKING:
    from tests.simulation_control.node import Process
    from tests.simulation_control.surroundings import Surroundings


class Database:
    """``digest``: of the record that the table has."""

    def __init__(self, world: Surroundings) -> None:
        self.world = world
        self.table = MemoryTable()
        self.table.fill(ChangeRecord(world.new_id(), world.plan.cluster or "c1", FIRST_TERM))
        self._down_until = 0

    @property
    def digest(self) -> str:
        return self.table.rows[-1].digest if self.table.rows else self.table.base_digest

    def go_down(self, duration_us: int) -> None:
        self._down_until = self.world.loop.now + duration_us

    def restore(self) -> None:
        """An administrator puts an earlier state of the record into the table, as one of a later reign."""
        table, rng = self.table, self.world.rng
        assert table.head is not None
        record = load(table.base.encode())
        for row in table.rows[: rng.randrange(len(table.rows) + 1)]:
            record.accept(entry_of(row))
        short = record.compress()
        short.forget_past()
        short.id, short.term = self.world.new_id(), restored_term(table.head.term)
        table.fill(short)

    def call(self, process: Process, call: ev.OnTable) -> None:
        """Answer a call, after a while."""
        rng = self.world.rng
        self.world.loop.after(rng.randrange(100, self.world.plan.table_us), self._arrive, process, call)

    def _arrive(self, process: Process, call: ev.OnTable) -> None:
        world, rng, loop = self.world, self.world.rng, self.world.loop
        if not world.calm and loop.now < self._down_until:
            process.feed(ev.TableDone(call.token, error="the database is down"))
            return
        if not world.calm and rng.random() < world.plan.table_unseen:
            world.count("the end of a call was not seen")
            if rng.random() < 0.7:  # It is carried out all the same, at once or later.
                loop.after(rng.choice((1, rng.randrange(1, 8 * S))), self.table.carry_out, call)
            unseen = ev.TableDone(call.token, error="no answer in time", unknown=True)
            loop.after(rng.randrange(1, 500 * MS), process.feed, unseen)
            return
        loop.after(rng.randrange(1, world.plan.table_us), process.feed, self.table.carry_out(call))
