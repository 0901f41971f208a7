"""The judge of histories: it passes what is right, and names whatever was taken away, doubled or put out of order."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace

import pytest

from raybroker.verify.ledger import EXAMPLES_MAX, Breach, Findings, HistoryLedger, runs_of
from raybroker.verify.notes import (
    Acknowledged,
    Delivered,
    ErrorTold,
    Foreign,
    Note,
    NotedDelivery,
    RolledBack,
    SendsBegun,
    SendsConfirmed,
    VerifyLane,
)

UNITS = 3
PRODUCERS = (1, 2)
BATCH = 4


def history(seed: int, lane: VerifyLane, batches: int = 20) -> list[Note]:
    """What a right broker makes of some sends: some unknown, some delivered again with a flag, each unit in order."""
    rng = random.Random(seed)
    notes: list[Note] = []
    waiting: deque[NotedDelivery] = deque()
    numbers = dict.fromkeys(PRODUCERS, 0)
    for _ in range(batches):
        producer = rng.choice(PRODUCERS)
        first = numbers[producer]
        numbers[producer] += BATCH
        notes.append(SendsBegun(lane, producer, first, BATCH))
        if rng.random() < 0.8:
            notes.append(SendsConfirmed(lane, producer, first, BATCH))
        elif rng.random() < 0.5:
            notes.append(ErrorTold("producer", "no answer"))
            continue
        waiting.extend(NotedDelivery(producer, number, 1, False) for number in range(first, first + BATCH))
        while waiting and rng.random() < 0.8:
            notes += handed_out(rng, lane, waiting)
    while waiting:
        notes += handed_out(rng, lane, waiting)
    return notes


def handed_out(rng: random.Random, lane: VerifyLane, waiting: deque[NotedDelivery]) -> list[Note]:
    """The next few, which come again when their acknowledgement got no answer."""
    some = [waiting.popleft() for _ in range(min(len(waiting), rng.randint(1, 5)))]
    delivered = Delivered(lane, rng.choice((7, 8)), some)
    if rng.random() < 0.8:
        return [delivered, Acknowledged(lane, delivered.consumer, some)]
    waiting.extendleft(reversed([one._replace(attempt=one.attempt + 1, flagged=True) for one in some]))
    return [delivered, ErrorTold("consumer", "the connection was lost")]


def judged(notes: list[Note], *, drained: bool = True) -> Findings:
    ledger = HistoryLedger(UNITS)
    for note in notes:
        ledger.add_note(note)
    return ledger.findings(drained=drained)


def broken(notes: list[Note], *, drained: bool = True) -> dict[Breach, int]:
    return {breach: count for breach, count in judged(notes, drained=drained).broken.items() if count}


# ---- mutants of a history --------------------------------------------------------------------------------------------


def last_delivery(notes: list[Note]) -> int:
    return max(index for index, note in enumerate(notes) if isinstance(note, Delivered))


def without(notes: list[Note], producer: int, number: int) -> list[Note]:
    """The history of a broker that has forgotten a message."""
    found: list[Note] = []
    for note in notes:
        if isinstance(note, Delivered | Acknowledged):
            left = [one for one in note.deliveries if (one.producer, one.number) != (producer, number)]
            found.append(replace(note, deliveries=left))
        else:
            found.append(note)
    return found


def a_confirmed_one(notes: list[Note]) -> tuple[int, int]:
    note = next(note for note in notes if isinstance(note, SendsConfirmed))
    return note.producer, note.first + 1


def lost(notes: list[Note]) -> list[Note]:
    return without(notes, *a_confirmed_one(notes))


def doubled(notes: list[Note]) -> list[Note]:
    """A message is there twice, and neither says so; nobody has acknowledged it before."""
    producer, number = a_confirmed_one(notes)
    index = next(i for i, note in enumerate(notes) if isinstance(note, Delivered) and has(note, producer, number))
    again = Delivered(VerifyLane.QUEUE, 9, [NotedDelivery(producer, number, 1, False)])
    return [*notes[: index + 1], again, *notes[index + 1 :]]


def has(note: Delivered, producer: int, number: int) -> bool:
    return any((one.producer, one.number) == (producer, number) for one in note.deliveries)


def given_again(notes: list[Note]) -> list[Note]:
    """What was acknowledged comes once more, flagged."""
    producer, number = a_confirmed_one(notes)
    return [*notes, Delivered(VerifyLane.QUEUE, 9, [NotedDelivery(producer, number, 9, True)])]


def acknowledged_late(notes: list[Note]) -> list[Note]:
    """An acknowledgement is answered although the message was given to somebody else meanwhile."""
    producer, number = a_confirmed_one(notes)
    return [*notes, Acknowledged(VerifyLane.QUEUE, 9, [NotedDelivery(producer, number, 0, False)])]


def invented(notes: list[Note]) -> list[Note]:
    return [*notes, Delivered(VerifyLane.QUEUE, 9, [NotedDelivery(1, 10_000, 1, False)])]


def foreign(notes: list[Note]) -> list[Note]:
    return [*notes, Foreign(VerifyLane.QUEUE, 1)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("lane", list(VerifyLane))
def test_a_right_history_has_no_finding(seed: int, lane: VerifyLane) -> None:
    notes = history(seed, lane)
    found = judged(notes)
    assert found.good, found.examples
    assert found.total.confirmed > 0
    assert found.total.delivered >= found.total.confirmed
    assert found.total.recovered == found.total.delivered - found.total.confirmed


@pytest.mark.parametrize(
    ("mutant", "breach"),
    [
        (lost, Breach.LOST),
        (doubled, Breach.REPEATED),
        (given_again, Breach.AGAIN),
        (acknowledged_late, Breach.AGAIN),
        (invented, Breach.INVENTED),
        (foreign, Breach.INVENTED),
    ],
    ids=lambda one: one.__name__ if callable(one) else str(one),
)
@pytest.mark.parametrize("seed", range(5))
def test_a_mutant_of_a_history_is_found(mutant: Callable[[list[Note]], list[Note]], breach: Breach, seed: int) -> None:
    notes = history(seed, VerifyLane.QUEUE)
    assert broken(notes) == {}
    found = judged(mutant(notes))
    assert found.broken[breach] == 1
    assert not found.good
    assert len(found.examples[breach]) == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_unit_out_of_order_is_found(seed: int) -> None:
    notes = history(seed, VerifyLane.UNITS)
    assert broken(notes) == {}
    mutants = 0
    for index, note in enumerate(notes):
        if isinstance(note, Delivered) and any(not one.flagged for one in note.deliveries):
            turned = [*notes[:index], replace(note, deliveries=list(reversed(note.deliveries))), *notes[index + 1 :]]
            firsts = [(one.producer, one.number % UNITS) for one in note.deliveries if not one.flagged]
            if len(firsts) > len(set(firsts)):
                mutants += bool(judged(turned).broken[Breach.DISORDERED])
    assert mutants, "a turned batch with two messages of a unit is out of order"


def test_only_confirmed_messages_of_a_unit_have_an_order() -> None:
    lane = VerifyLane.UNITS
    begun = [SendsBegun(lane, 1, 0, 9)]
    late = [Delivered(lane, 7, [NotedDelivery(1, 3, 1, False)]), Delivered(lane, 7, [NotedDelivery(1, 0, 1, False)])]
    assert broken([*begun, SendsConfirmed(lane, 1, 3, 1), *late]) == {}
    assert broken([*begun, SendsConfirmed(lane, 1, 0, 1), *late]) == {}
    assert broken([*begun, SendsConfirmed(lane, 1, 0, 1), SendsConfirmed(lane, 1, 3, 1), *late]) == {
        Breach.DISORDERED: 1
    }
    other_unit = [
        Delivered(lane, 7, [NotedDelivery(1, 4, 1, False)]),
        Delivered(lane, 7, [NotedDelivery(1, 0, 1, False)]),
    ]
    assert broken([*begun, SendsConfirmed(lane, 1, 0, 1), SendsConfirmed(lane, 1, 4, 1), *other_unit]) == {}


def test_what_has_not_come_is_lost_only_once_all_is_drained() -> None:
    notes: list[Note] = [SendsBegun(VerifyLane.QUEUE, 1, 0, 6), SendsConfirmed(VerifyLane.QUEUE, 1, 0, 5)]
    assert broken(notes, drained=False) == {}
    assert broken(notes) == {Breach.LOST: 5}
    assert judged(notes).examples[Breach.LOST] == ["queue: messages 0-4 of producer 1"]


def test_of_a_transaction_that_was_rolled_back_nothing_may_come() -> None:
    moved = Delivered(VerifyLane.MOVED, 7, [NotedDelivery(1, 0, 1, False, transaction=(5 << 32) + 2)])
    notes: list[Note] = [
        SendsBegun(VerifyLane.MOVED, 1, 0, 1),
        SendsConfirmed(VerifyLane.MOVED, 1, 0, 1),
        RolledBack((5 << 32) + 2),
    ]
    found = judged([*notes, moved])
    assert found.broken[Breach.ROLLED_BACK] == 1
    assert "transaction 2 of mover 5" in found.examples[Breach.ROLLED_BACK][0]
    committed = replace(moved, deliveries=[NotedDelivery(1, 0, 1, False, transaction=(5 << 32) + 3)])
    assert broken([*notes, committed]) == {}


def test_a_delivery_that_was_taken_back_may_be_noted_late() -> None:
    """Its consumer had it before the one that acknowledged it, and was slow to say so."""
    lane = VerifyLane.QUEUE
    notes: list[Note] = [
        SendsBegun(lane, 1, 0, 1),
        SendsConfirmed(lane, 1, 0, 1),
        Delivered(lane, 8, [NotedDelivery(1, 0, 2, True)]),
        Acknowledged(lane, 8, [NotedDelivery(1, 0, 2, True)]),
        Delivered(lane, 7, [NotedDelivery(1, 0, 1, False)]),
    ]
    assert broken(notes) == {}


def test_findings_are_counted_beyond_those_that_are_written_out() -> None:
    many = EXAMPLES_MAX * 2
    notes: list[Note] = [SendsBegun(VerifyLane.QUEUE, 1, 0, many), SendsConfirmed(VerifyLane.QUEUE, 1, 0, many)]
    notes += [Delivered(VerifyLane.QUEUE, 7, [NotedDelivery(1, n, 1, False)]) for n in range(many)] * 2
    found = judged(notes)
    assert found.broken[Breach.REPEATED] == many
    assert len(found.examples[Breach.REPEATED]) == EXAMPLES_MAX


def test_numbers_are_written_as_runs() -> None:
    assert list(runs_of([])) == []
    assert list(runs_of([0])) == ["0"]
    assert list(runs_of([0, 1, 2, 5, 7, 8])) == ["0-2", "5", "7-8"]
