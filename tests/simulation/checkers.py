"""Verdicts over histories. Each checker sees operations in order of time and returns what is wrong; nothing is fine.

``total_queue``, ``queue`` and ``set_check`` are the known ones, widened by what this broker promises: a message may
come again, but only when its earlier delivery was not acknowledged, and then it says so.  All are linear.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tests.simulation.history import PASSING_SHIFT, SENDS, SEQ_BITS, Op


class Total(NamedTuple):
    """Multisets of values; see :func:`total_queue`."""

    lost: Counter[int]
    unexpected: Counter[int]
    duplicated: Counter[int]
    recovered: Counter[int]

    @property
    def valid(self) -> bool:
        return not self.lost and not self.unexpected


def total_queue(ops: Iterable[Op]) -> Total:
    """After a complete drain: what was acknowledged came out, and what came out was sent.

    ``duplicated`` came out more often than it was sent, which is legal for redelivered messages; ``recovered`` came out
    although nobody knew that it was taken.  Values that an administrator discarded are not missed.
    """
    attempted: Counter[int] = Counter()
    enqueued: Counter[int] = Counter()
    dequeued: Counter[int] = Counter()
    discarded: set[int] = set()
    for op in ops:
        if op.f == "enqueue":
            if op.type == "invoke":
                attempted[op.value] += 1
            elif op.type == "ok":
                enqueued[op.value] += 1
        elif op.f == "dequeue":
            if op.type == "ok":
                dequeued[op.value] += 1
        elif op.f in ("discard", "destroy"):
            discarded.add(op.value)
    unexpected = Counter({v: n for v, n in dequeued.items() if v not in attempted})
    lost = Counter({v: n for v, n in (enqueued - dequeued).items() if v not in discarded})
    return Total(lost, unexpected, dequeued - attempted - unexpected, (dequeued & attempted) - enqueued)


def queue(ops: Iterable[Op]) -> list[str]:
    """On any prefix: every message that came out had gone in, and no attempt of it comes out twice.

    A message may come out again with a higher attempt, and, at a consumer that the broker has given up and that does
    not know, later than that.  A refused message (``fail``) certainly did not go in, so it may not come out.
    """
    wrong: list[str] = []
    inside: set[int] = set()
    out: dict[int, set[int]] = {}
    renewed: set[int] = set()
    for op in ops:
        if op.f == "enqueue":
            if op.type == "invoke":
                inside.add(op.value)
            elif op.type == "fail":
                inside.discard(op.value)
                if op.value in out and op.value not in renewed:
                    wrong.append(f"{name(op.value)} was refused after it had come out")
        elif op.f == "dequeue" and op.type == "ok":
            if op.value not in inside:
                wrong.append(f"{name(op.value)} came out and is not inside")
            attempts = out.setdefault(op.value, set())
            if op.attempt in attempts and op.value not in renewed:
                wrong.append(f"{name(op.value)} came out twice as attempt {op.attempt}")
            attempts.add(op.attempt)
        elif op.f == "destroy":
            renewed.add(op.value)
    return wrong


class SetVerdict(NamedTuple):
    ok: set[int]
    lost: set[int]
    unexpected: set[int]
    recovered: set[int]

    @property
    def valid(self) -> bool:
        return not self.lost and not self.unexpected


def set_check(attempted: set[int], acknowledged: set[int], final: set[int]) -> SetVerdict:
    """A final read of everything against what was tried and what was acknowledged."""
    ok = final & attempted
    return SetVerdict(ok, acknowledged - final, final - attempted, ok - acknowledged)


def commit_delivery(ops: Iterable[Op]) -> list[str]:
    """A persistent message is delivered, and its send acknowledged, only once it is durable; never once settled."""
    wrong: list[str] = []
    committed: set[int] = set()
    settled: set[int] = set()
    for op in ops:
        if op.f == "commit":
            committed.add(op.value)
        elif op.f == "deliver":
            if op.persistent and op.value not in committed:
                wrong.append(f"{name(op.value)} was delivered before it was durable")
            if op.value in settled:
                wrong.append(f"{name(op.value)} was delivered after its acknowledgement was confirmed")
        elif op.f == "enqueue" and op.type == "ok":
            if op.persistent and op.value not in committed:
                wrong.append(f"{name(op.value)} was confirmed before it was durable")
        elif op.f == "settle" and op.type == "ok":
            settled.add(op.value)
        elif op.f == "destroy":
            settled.discard(op.value)
    return wrong


def flagged(ops: Iterable[Op]) -> list[str]:
    """A message that an application got is delivered with a higher attempt from then on, across crashes of the host.

    One that no application got may come again as the same attempt.
    """
    wrong: list[str] = []
    attempts: dict[int, int] = {}
    for op in ops:
        if op.f == "destroy":
            attempts.pop(op.value, None)
        before = attempts.get(op.value, 0)
        if op.f == "deliver" and op.attempt <= before:
            wrong.append(f"{name(op.value)} was delivered as attempt {op.attempt} after attempt {before}")
        if op.f == "dequeue" and op.type == "ok":
            attempts[op.value] = max(op.attempt, before)
    return wrong


def order(ops: Iterable[Op], class_of: Callable[[int], int | None] = lambda value: 4) -> list[str]:
    """First deliveries to one consumer (``process``) of one producer, persistence and class ascend.

    ``class_of``: a message's priority; None for one that has no place in the order, since it was delayed, say.
    One that came back unseen is delivered as the first attempt again, wherever it goes then.
    """
    wrong: list[str] = []
    last: dict[tuple[int, int, bool, int], int] = {}
    unseen: set[int] = set()
    for op in ops:
        first = op.f == "deliver" and op.attempt == 1 and op.value not in unseen
        if op.f == "unsee":
            unseen.add(op.value)
        if first and (level := class_of(op.value)) is not None:
            key = op.process, op.value >> SEQ_BITS, op.persistent, level
            before = last.get(key, 0)
            if op.value <= before:
                wrong.append(f"{name(op.value)} was first delivered after {name(before)} to consumer {op.process:#x}")
            last[key] = op.value
    return wrong


class Units(NamedTuple):
    """The unit of order of a message, and the session of a consumer (``process``)."""

    unit_of: Callable[[int], str | None] = lambda value: None
    session_of: Callable[[int], str | int] = lambda process: process


def in_units(ops: Iterable[Op], units: Units) -> list[str]:
    """First deliveries of one producer's messages of one unit of order ascend, whoever gets them (U1, U9).

    Neither priority nor persistence, delays nor transactions matter.  Two consumers of one session may hear of their
    messages in another order: which of them it asks first is the application's.  What was dead, and comes back after a
    crash because that was not settled, comes after those that were handed out meanwhile.
    """
    wrong: list[str] = []
    unseen: set[int] = set()
    revived: set[int] = set()
    last: dict[tuple[int, str], Op] = {}
    for op in ops:
        if op.f == "revive":
            revived.add(op.value)
        if op.f == "unsee":
            unseen.add(op.value)
        if op.value in unseen:
            continue
        unit = units.unit_of(op.value) if op.f in ("deliver", "destroy") else None
        if unit is None or op.value in revived:
            continue
        key = op.value >> SEQ_BITS, unit
        if op.f == "destroy":
            last.pop(key, None)
        elif op.attempt == 1:
            before = last.get(key, op._replace(value=0))
            here, there = units.session_of(op.process), units.session_of(before.process)
            if op.value <= before.value and (op.process == before.process or here != there):
                wrong.append(f"{name(op.value)} was first delivered after {name(before.value)} of its unit")
            last[key] = op if op.value > before.value else before
    return wrong


def volatile(ops: Iterable[Op]) -> list[str]:
    """A non-persistent message that was delivered before a crash of the host is not delivered after it."""
    wrong: list[str] = []
    before: set[int] = set()
    now: set[int] = set()
    for op in ops:
        if op.f == "crash":
            before |= now
            now.clear()
        elif op.f == "deliver" and not op.persistent:
            if op.value in before:
                wrong.append(f"non-persistent {name(op.value)} was delivered again after a crash")
            now.add(op.value)
    return wrong


def consumed(ops: Iterable[Op]) -> list[str]:
    """After a complete drain: what was acknowledged to its producer was also consumed for good, or discarded."""
    owed: set[int] = set()
    done: Counter[int] = Counter()
    for op in ops:
        if op.f == "enqueue" and op.type == "ok":
            owed.add(op.value)
        elif op.f in ("discard", "destroy"):
            done[op.value] += 1 << 30
        elif op.f == "consume":
            done[op.value] += 1 if op.type == "ok" else -1
    return [f"{name(value)} was acknowledged and never consumed" for value in sorted(owed) if done[value] <= 0]


def refused(ops: Iterable[Op]) -> list[str]:
    """What a producer was told to be refused, or rolled back, is in no durable subscription of the topic."""
    ops = list(ops)
    out = {op.value for op in ops if op.f == "deliver" and not op.where >> PASSING_SHIFT}
    failed = {op.value for op in ops if op.where == SENDS and op.f == "enqueue" and op.type == "fail"}
    again = {op.value for op in ops if op.where == SENDS and op.f == "enqueue" and op.type == "ok"}
    return [f"{name(value)} was refused and came out" for value in sorted(out & failed - again)]


def all_of(
    ops: list[Op],
    class_of: Callable[[int], int | None] = lambda value: 4,
    units: Units | None = None,
) -> list[str]:
    """Every checker over the history of a run that was drained: over all queues, then over each subscription."""
    groups: dict[int, list[Op]] = {0: []}
    for op in ops:
        groups.setdefault(op.where, []).append(op)
    groups.pop(SENDS, None)
    wrong = refused(op for op in ops if op.where)
    for where, group in groups.items():
        found = _group(group, class_of, durable=not where >> PASSING_SHIFT) + in_units(group, units or Units())
        wrong += [f"{text} (subscription {where:#x})" for text in found] if where else found
    return wrong


def _group(ops: list[Op], class_of: Callable[[int], int | None], *, durable: bool) -> list[str]:
    total = total_queue(ops)
    wrong = [f"{name(v)} was acknowledged and never came out" for v in total.lost]
    wrong += [f"{name(v)} came out and was never sent" for v in total.unexpected]
    for checker in (queue, flagged, volatile, consumed):
        wrong += checker(ops)
    if durable:
        wrong += commit_delivery(ops)
    wrong += order(ops, class_of)
    wrong += _sets(ops)
    return wrong


def atomic(values: Iterable[int], committed: set[int]) -> list[str]:
    """Of what one transaction sent, all was stored or nothing."""
    values = list(values)
    there = [value for value in values if value in committed]
    if there and len(there) != len(values):
        missing = next(value for value in values if value not in committed)
        return [f"{name(there[0])} was stored and {name(missing)} of the same transaction was not"]
    return []


def _sets(ops: list[Op]) -> list[str]:
    """The set test, with what was delivered or discarded as the final read of a drained broker."""
    attempted = {op.value for op in ops if op.f == "enqueue" and op.type == "invoke"}
    known = {op.value for op in ops if op.f == "enqueue" and op.type == "ok"}
    final = {op.value for op in ops if op.f in ("dequeue", "discard", "destroy")}
    verdict = set_check(attempted, known, final)
    return [f"set test: {name(v)} is lost" for v in verdict.lost] + [
        f"set test: {name(v)} was never sent" for v in verdict.unexpected
    ]


def name(value: int) -> str:
    return f"message {value >> SEQ_BITS}-{value & (1 << SEQ_BITS) - 1}"
