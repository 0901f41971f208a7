"""How a story tells what the core decided: messages, consumers and transactions by their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from raybroker.core.blocks import message_mask as pk
from raybroker.core.destination import Destination
from raybroker.core.durable import records
from raybroker.core.outcome import (
    Acked,
    DeadLetter,
    Deliver,
    Drained,
    Gate,
    Idle,
    Outcome,
    Promoted,
    Ready,
    Recall,
    Released,
    Retire,
    SendAnswered,
    Withdrawn,
)
from raybroker.core.settlement import QUEUE_ALL
from raybroker.core.staleness.version_pending import VersionPending
from raybroker.core.subscription import Subscription
from raybroker.model.blocks.record import BLOCK, LogEntry

MANY = 12
"""More messages than this are told as the first and the last."""


class Telling:
    """``tags``: consumer → label → tag of its last delivery."""

    def __init__(self) -> None:
        self.labels: dict[tuple[int, int], str] = {}
        self.names: dict[int, str] = {}
        self.tags: dict[str, dict[str, int]] = {}
        self.subscriptions: dict[int, str] = {}

    def name_block(self, ordinal: int, labels: list[str]) -> None:
        self.labels |= {(ordinal, index): label for index, label in enumerate(labels)}

    def name_attachment(self, number: int, name: str) -> None:
        self.names[number] = name
        self.tags[name] = {}

    # ---- an outcome ------------------------------------------------------------------------------------------------

    def outcome(self, out: Outcome) -> list[str]:
        """Its parts, in the order in which things happen."""
        late = [text for effect in out.after_durable if (text := self._effect(effect))]
        if late:
            late[0] = f"then {late[0]}"
        return [*(f"now {self._effect(effect)}" for effect in out.immediate), *map(self._record, out.records), *late]

    def _record(self, entry: LogEntry) -> str:
        if entry.kind == BLOCK:
            meta = records.decode_block_meta(entry.meta)
            owner = f" in {_text(meta.txn)}" if meta.txn else ""
            return f"persist {self._messages([(entry.ordinal, pk.span(0, meta.messages), 1)])}{owner}"
        note = records.decode(entry.meta)
        rows = self._messages((row.ordinal, row.mask, 1) for row in note.rows)
        if note.kind == records.ACKED:
            blocks = [f"block {a}" if a == b else f"blocks {a}-{b}" for a, b, _ in note.spans]
            verb = "vanished" if note.queue == QUEUE_ALL else "settled" + self._of_queue(note.queue)
            return f"persist {verb} " + " ".join([*blocks, rows]).strip()
        if note.kind == records.QUEUE:
            self.subscriptions[note.queue] = Subscription.decode(note.rest).name
            return f"persist subscription {self.subscriptions[note.queue]}"
        if note.kind == records.STAGED:
            return f"persist consumed {rows} in {_text(records.decode_number(note.rest))}"
        return (
            "persist "
            + {
                records.REFUSED: f"without {rows}",
                records.DISPATCHED: "handed out",
                records.FAILED: f"failed {rows}",
                records.QUEUE_GONE: f"end of subscription {self.subscriptions.get(note.queue, '')}",
                records.DEDUP: "ids",
                records.VERSION: "version",
                records.BURIED: f"buried {rows}",
                records.TAKEN: f"unwanted {sum(last - first + 1 for first, last, _ in note.spans)}",
            }[note.kind]
        )

    def _of_queue(self, queue: int) -> str:
        return f" for {self.subscriptions[queue]}" if queue else ""

    def _effect(self, effect: Any) -> str:
        if isinstance(effect, Retire):
            return ""
        if isinstance(effect, Idle):
            return "idle"
        if isinstance(effect, DeadLetter):
            return f"dead {self._messages([(effect.ordinal, effect.mask, 1)])} ({effect.reason})"
        name = self.names[effect.attachment]
        if isinstance(effect, Deliver):
            for offset, index in enumerate(pk.indexes(effect.mask)):
                self.tags[name][self.labels[effect.ordinal, index]] = effect.tag + offset
            return f"deliver {name} {self._messages([(effect.ordinal, effect.mask, effect.attempt)])}"
        if isinstance(effect, SendAnswered):
            return self._sent(effect, name)
        if isinstance(effect, Acked):
            return f"acked {name}" + (f" ({effect.unknown} unknown)" if effect.unknown else "")
        if isinstance(effect, Released):
            return f"released {name}"
        if isinstance(effect, Gate):
            return f"{effect.state} {name}"
        if isinstance(effect, Drained):
            return f"void {name} {effect.unused}"
        if isinstance(effect, Ready):
            return f"ready {name}"
        if isinstance(effect, Withdrawn):
            labels = [label for label, tag in self.tags[name].items() if any(a <= tag <= b for a, b in effect.ranges)]
            return f"withdrawn {name} {' '.join(labels)}"
        if isinstance(effect, Recall):
            tags = self.tags[name].items()
            asked = [label for label, tag in tags if any(a <= tag <= b for a, b in effect.ranges)]
            return f"recall {name} {' '.join(asked) if len(asked) <= MANY else f'{asked[0]}..{asked[-1]}'}"
        assert isinstance(effect, Promoted)
        return f"promoted {name}"

    def _sent(self, effect: SendAnswered, name: str) -> str:
        refused = [f"{row.code} for {row.end - row.start}" for row in effect.refused]
        return f"sent {name} {effect.messages}" + (f" ({', '.join(refused)})" if refused else "")

    def _messages(self, rows: Iterable[tuple[int, int, int]]) -> str:
        found = [
            self.labels[ordinal, index] + (f"({attempt})" if attempt > 1 else "")
            for ordinal, mask, attempt in rows
            for index in pk.indexes(mask)
        ]
        if len(found) > MANY:
            return f"{found[0]}..{found[-1]} ({len(found)})"
        return " ".join(found)

    # ---- a state ---------------------------------------------------------------------------------------------------

    def status(self, destination: Destination) -> str:
        block_index, queues = destination.block_index, list(destination.queues.values())
        parts = [f"{block_index.messages} held", f"{block_index.bytes_held} bytes"]
        parts.append(f"{sum(queue.plain.backlog.count for queue in queues)} waiting")
        for name, count in (
            ("resting", sum(queue.delayed.count for queue in queues)),
            ("hidden", sum(run.count for queue in queues for run, _ in queue.hidden)),
            ("in transactions", sum(staged.messages for staged in destination.staged.values())),
        ):
            if count:
                parts.append(f"{count} {name}")
        starving = [queue.plain.starvation for queue in queues if isinstance(queue.plain, VersionPending)]
        if any(one.starving for one in starving):
            parts.append(f"starving since {min(one.since_ms or 0 for one in starving)} ms")
        return ", ".join(parts)

    def recovered(self, destination: Destination) -> str:
        return "recovered " + ("; ".join(self._recovered(destination)) or "nothing")

    def _recovered(self, destination: Destination) -> Iterator[str]:
        for queue in destination.queues.values():
            states: dict[str, list[tuple[int, int, int]]] = {}
            for state, run in queue.contents():
                states.setdefault(state, []).append((run.ordinal, run.mask, run.attempts + 1))
            own = f"{queue.subscription.name}: " if queue.subscription is not None else ""
            told = [
                ("" if state == "waiting" else f"{state} ") + self._messages(rows) for state, rows in states.items()
            ]
            if told or own:
                yield own + (", ".join(told) or "nothing")
        for txn, staged in destination.staged.items():
            sent = self._messages((block.ordinal, block.mask, 1) for block in staged.blocks)
            consumed = self._messages((d.run.ordinal, d.run.mask, 1) for _, d in staged.acks)
            parts = [f"sent {sent}"] if sent else []
            yield f"prepared {_text(txn)}: " + ", ".join([*parts, *([f"consumed {consumed}"] if consumed else [])])


def labels_of(word: str) -> list[str]:
    """``m1..m3`` is m1 m2 m3."""
    first, dots, last = word.partition("..")
    if not dots:
        return [word]
    stem = first.rstrip("0123456789")
    return [f"{stem}{n}" for n in range(int(first[len(stem) :]), int(last[len(stem) :]) + 1)]


def _text(number: int) -> str:
    """The name of a transaction."""
    return number.to_bytes((number.bit_length() + 7) // 8, "big").decode()
