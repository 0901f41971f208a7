"""What a transaction does at one destination: blocks that nobody sees yet, and acknowledgements that do not count yet.

The transaction itself, which may have several destinations, is the engine's.  Here a block that waits is charged like
any other, so that a commit cannot fail for a limit (T-04, W-06).  Nothing is written down before the end of a
transaction, or before it is prepared, since what is open when the host stops is rolled back (T-05).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raybroker.core import command as cmd
from raybroker.core import intake, notes, work
from raybroker.core import picks as pk
from raybroker.core.backlog import Run
from raybroker.core.consumers import Consumer, Delivery
from raybroker.core.ledger import Held
from raybroker.core.outcome import Outcome, Refused, Sent
from raybroker.core.staged import Staged, StagedBlock
from raybroker.model.errors import TransactionRolledBackError

if TYPE_CHECKING:
    from raybroker.core.destination import Destination
    from raybroker.core.lane import Lane


def stage_acks(home: Destination, command: cmd.StageAcks, out: Outcome) -> None:
    lane = home.lane_of.get(command.attachment)
    consumer = lane.consumers.by_attachment.get(command.attachment) if lane is not None else None
    wanted = sum(last - first + 1 for first, last in command.ranges)
    if lane is None or consumer is None or consumer.count_of(command.ranges) != wanted:
        raise TransactionRolledBackError(
            f"messages of {home.name} that the transaction consumed were given to others meanwhile; it cannot commit"
        )
    _check_units(lane, consumer, command)
    staged = home.stage(command.txn)
    for first, last in command.ranges:
        found = list(consumer.settle(first, last))
        if lane.order is not None:
            lane.order.stage(found, command.txn)
        staged.acks.extend((lane.number, delivery) for delivery in found)
        consumer.window.settled(sum(delivery.count for delivery in found))
    lane.consumers.offer(consumer)
    home.touch(lane)


def _check_units(lane: Lane, consumer: Consumer, command: cmd.StageAcks) -> None:
    """Messages of one unit of order are with one transaction at a time (W-81)."""
    if lane.order is None:
        return
    name = lane.order.staged_elsewhere(consumer.tagged(command.ranges), command.txn)
    if name is not None:
        raise TransactionRolledBackError(
            f"another transaction has earlier messages of unit of order {name!r}; it has to end before"
        )


def prepare(home: Destination, command: cmd.Prepare, out: Outcome) -> None:
    staged = home.stage(command.txn)
    staged.prepared = True
    for block in staged.blocks:
        held = home.ledger.held[block.ordinal]
        claims = work.owing(home, held, block.picks, block.content, block.origin, out)
        staged.claims[block.ordinal] = claims
        _write(home, block, claims, command.txn, out)
    for number, rows in rows_of(home, staged.acks).items():
        meta = notes.encode(notes.STAGED, number, (), rows, notes.encode_number(command.txn))
        out.records.append(home.note(meta))


def rows_of(home: Destination, acks: list[tuple[int, Delivery]]) -> dict[int, list[notes.Row]]:
    """Lane → what of it was acknowledged, as far as it survives a restart."""
    rows: dict[int, list[notes.Row]] = {}
    for number, delivery in acks:
        block = home.ledger.held[delivery.run.ordinal]
        if block.stored and home.lanes[number].durable:
            run = delivery.run
            rows.setdefault(number, []).append(notes.Row(run.ordinal, run.picks, run.attempts))
    return rows


def _write(home: Destination, staged: StagedBlock, claims: dict[int, int], txn: int, out: Outcome) -> None:
    block = home.ledger.held[staged.ordinal]
    for a, b in pk.runs_of(staged.picks):
        if staged.persistent:
            home.producers.take(staged.producer, staged.first_seq + a, staged.first_seq + b)
    intake.store(home, staged.ordinal, block, staged.picks, claims, staged.producer, staged.first_seq, txn, out)


def decide(home: Destination, command: cmd.Decide, out: Outcome) -> None:
    staged = home.staged.pop(command.txn, None)
    if staged is None:
        return
    if command.commit:
        _commit(home, staged, out)
        intake.discard_excess(home, out)
    else:
        _roll_back(home, staged, command.delay_ms, out)


def _commit(home: Destination, staged: Staged, out: Outcome) -> None:
    for waiting in staged.blocks:
        _show(home, staged, waiting, out)
    by_lane: dict[int, list[Delivery]] = {}
    for number, delivery in staged.acks:
        by_lane.setdefault(number, []).append(delivery)
    for number, deliveries in by_lane.items():
        if number in home.lanes:
            _unstage(home.lanes[number], deliveries)
            home.acknowledged(home.lanes[number], deliveries, out)


def _show(home: Destination, staged: Staged, waiting: StagedBlock, out: Outcome) -> None:
    """The messages of a block become visible, without those whose deduplication ids were taken meanwhile."""
    ordinal, everything = waiting.ordinal, waiting
    block = home.ledger.held[ordinal]
    waiting = _without_duplicates(home, waiting, out)
    home.counters.take(waiting.picks.bit_count(), block.bytes_of(waiting.picks), moved=waiting.moved)
    claims = _claims(home, staged, waiting, out) if waiting.picks or staged.prepared else {}
    if not staged.prepared and waiting.picks:
        _write(home, waiting, claims, 0, out)
    elif staged.prepared and waiting is not everything:
        claims = _leave_out(home, block, waiting, claims, out)
    owed = 0
    for chosen in claims.values():
        owed |= chosen
    block.claims = len(claims)
    _keep_places(home, everything, claims)
    rest = everything.picks & ~owed
    if rest and home.ledger.settle(ordinal, rest):
        home.gone(ordinal, block, out)
    else:
        home.accepted(ordinal, claims, waiting.content)


def _without_duplicates(home: Destination, waiting: StagedBlock, out: Outcome) -> StagedBlock:
    """The ids of what is committed are taken now; the producer is told of those that others took before."""
    ids = waiting.ids
    if ids is None and not waiting.attachment and home.attributes.duplicateWindowMs > 0:
        content = home.peek(waiting.ordinal)  # It was prepared before a restart.
        ids = content.dedup_ids() if content is not None else None
    if ids is None:
        return waiting
    fresh = intake.leave_out_duplicates(home, ids, waiting.picks)
    intake.take_ids(home, ids, fresh, out, persistent=waiting.persistent)
    twice = waiting.picks & ~fresh
    if not twice:
        return waiting
    if home.works is not None:
        home.works.release(home.ledger.held[waiting.ordinal], twice)
    rows = tuple([Refused(a, b, intake.DUPLICATE, "") for a, b in pk.runs_of(twice)])
    count = home.ledger.held[waiting.ordinal].count
    out.after_durable.append(Sent(waiting.attachment, waiting.first_seq, count, rows))
    return waiting._replace(picks=fresh)


def _leave_out(
    home: Destination, block: Held, waiting: StagedBlock, claims: dict[int, int], out: Outcome
) -> dict[int, int]:
    """A prepared block was written with messages that nobody gets: write that down, and return who gets the others."""
    for number, chosen in claims.items():
        dropped = chosen & ~waiting.picks
        if dropped and block.stored and home.lanes[number].durable:
            row = notes.Row(waiting.ordinal, dropped)
            out.records.append(home.note(notes.encode(notes.ACKED, number, (), [row])))
    kept = {number: chosen & waiting.picks for number, chosen in claims.items()}
    return {number: chosen for number, chosen in kept.items() if chosen}


def _unstage(lane: Lane, deliveries: list[Delivery]) -> None:
    if lane.order is not None:
        lane.order.stage(deliveries, 0, -1)


def _keep_places(home: Destination, waiting: StagedBlock, claims: dict[int, int]) -> None:
    """Messages that a lane does not get after all leave their places in their units of order."""
    if home.ledger.held[waiting.ordinal].ordered:
        for number, lane in home.lanes.items():
            if lane.order is not None:
                lane.order.forget(waiting.ordinal, waiting.picks & ~claims.get(number, 0))
                lane.order.reserved.pop(waiting.ordinal, None)


def _claims(home: Destination, staged: Staged, waiting: StagedBlock, out: Outcome) -> dict[int, int]:
    """Who gets a block: those written down for it that are still there, and whoever is never written down."""
    content = waiting.content
    if content is None and home.kind == "topic":
        content = home.peek(waiting.ordinal)  # It was prepared before a restart.
    claims = work.owing(home, home.ledger.held[waiting.ordinal], waiting.picks, content, waiting.origin, out)
    if not staged.prepared:
        return claims
    claims = {number: picks for number, picks in claims.items() if not home.lanes[number].durable}
    written = staged.claims.get(waiting.ordinal, {})
    return claims | {number: picks for number, picks in written.items() if number in home.lanes}


def _roll_back(home: Destination, staged: Staged, delay_ms: int, out: Outcome) -> None:
    for waiting in staged.blocks:
        block = home.ledger.held[waiting.ordinal]
        _keep_places(home, waiting, {})
        if home.works is not None:
            home.works.release(block, waiting.picks)
        if home.ledger.settle(waiting.ordinal, waiting.picks):
            home.gone(waiting.ordinal, block, out)
    by_lane: dict[int, list[Delivery]] = {}
    for number, delivery in staged.acks:
        by_lane.setdefault(number, []).append(delivery)
    for number, deliveries in by_lane.items():
        lane = home.lanes.get(number)
        if lane is not None:
            _unstage(lane, deliveries)
            lane.failed(sorted(deliveries, key=_order), delay_ms, out)
            home.touch(lane)


def _order(delivery: Delivery) -> tuple[int, int]:
    run: Run = delivery.run
    return run.place, run.picks & -run.picks


def forget_lane(home: Destination, lane: Lane) -> None:
    """The lane ends: nothing that a transaction acknowledged in it matters any more."""
    for staged in home.staged.values():
        staged.acks = [(number, delivery) for number, delivery in staged.acks if number != lane.number]
