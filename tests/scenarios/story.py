"""Plays a story about one queue: each line is a command and what the core decided, ``command -> outcome``.

Verbs:

    queue NAME [attribute=value …]      a new queue; ``auto=SECONDS`` makes it auto-created with that reap time
    producer P                          a producer opens the queue
    send P a b c [volatile] [size=N]    one block with messages a, b, c (sizes: N bytes, else the length of the label)
    send P m1..m1000                    one block for each 500 messages
    again P a                           the producer sends the block that starts with a once more, over a new connection
    consume C credit=N|prefetch=N [no_ack]
    ack C a b | ack C a..b              acknowledge these messages, asking for a confirmation
    grant C N                           the consumer asks for N more (credit), or polls for N (prefetch=0)
    release C [credit]                  the consumer gives everything back (recover)
    close X                             a producer or consumer goes away
    hold C | proceed C                  stop and start delivery
    purge | update attribute=value … | tick SECONDS | status
    crash                               what was not recorded is lost; a new host recovers the queue
    checkpoint                          like crash, from a snapshot taken first

An outcome reads in the order in which things happen: ``now`` what is released at once, ``persist`` what is recorded,
``then`` what waits for that.  A redelivered message carries its attempt, as in ``m1(2)``.  ``#`` starts a comment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from raybroker.core import command as cmd
from raybroker.core import notes
from raybroker.core.invariants import check
from raybroker.core.outcome import Acked, Deliver, Idle, Outcome, Promoted, Released, Retire, Sent
from raybroker.core.queue import Queue
from raybroker.core.recovery import Recovery, snapshot
from raybroker.model.errors import BrokerError
from raybroker.model.record import BLOCK, Entry
from raybroker.model.settings import destination_attributes, updated_attributes

WIDTH = 44
"""Where the arrows of a story stand, when its commands are short enough."""


def play(text: str) -> str:
    """The story with the outcomes that the core gives now."""
    story = Story()
    return "\n".join(_line(story, line) for line in text.splitlines()) + "\n"


def _line(story: Story, line: str) -> str:
    before, arrow, after = line.partition("->")
    command = before.partition("#")[0].strip()
    if not command:
        return line.rstrip()
    comment = after.partition("#")[2] if arrow else before.partition("#")[2]
    outcome = story.tell(command)
    return f"{command:{WIDTH}} -> {outcome}" + (f"    # {comment.strip()}" if comment.strip() else "")


class Story:
    """A queue with names for everything in it."""

    def __init__(self) -> None:
        self.queue: Queue
        self.log: list[Entry] = []
        self.labels: dict[tuple[int, int], str] = {}
        self.numbers: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.tags: dict[str, dict[str, int]] = {}
        self.blocks: dict[tuple[str, str], tuple[cmd.Send, list[str]]] = {}
        self.next_seq: dict[str, int] = {}
        self.now_ms = 0
        self._next = 1

    def tell(self, line: str) -> str:
        verb, *words = line.split()
        options = dict(w.split("=", 1) for w in words if "=" in w)
        plain = [label for w in words if "=" not in w for label in _labels(w)]
        try:
            found: str = _VERBS[verb](self, plain, options)
        except BrokerError as error:
            found = f"refused: {error.code}"
        check(self.queue)
        return found

    # ---- verbs -----------------------------------------------------------------------------------------------------

    def make(self, words: list[str], options: dict[str, str]) -> str:
        auto = options.pop("auto", None)
        reap_ms = int(auto) * 1000 if auto else None
        self.queue = Queue(1, words[0], destination_attributes(options), reap_ms=reap_ms)
        return "ok"

    def producer(self, words: list[str], options: dict[str, str]) -> str:
        number = self._number(words[0])
        return self._do(cmd.AttachProducer(number, _identity(words[0])))

    def send(self, words: list[str], options: dict[str, str]) -> str:
        name, *labels = [w for w in words if w != "volatile"]
        outcomes = []
        for at in range(0, len(labels), 500):
            part = labels[at : at + 500]
            first = self.next_seq.get(name, 1)
            self.next_seq[name] = first + len(part)
            sizes = [int(options["size"]) if "size" in options else len(label) for label in part]
            command = cmd.Send(self.numbers[name], _identity(name), first, sizes, "volatile" not in words, 1)
            self.blocks[name, part[0]] = command, part
            outcomes.append(self._send(command, part))
        return "; ".join(outcomes)

    def _send(self, command: cmd.Send, labels: list[str]) -> str:
        ordinal = self.queue.ledger.next_ordinal
        self.labels |= {(ordinal, index): label for index, label in enumerate(labels)}
        return self._do(command)

    def again(self, words: list[str], options: dict[str, str]) -> str:
        name, label = words
        command, labels = self.blocks[name, label]
        number = self._number(name)
        self._do(cmd.AttachProducer(number, _identity(name)))
        return self._send(command._replace(attachment=number), labels)

    def consume(self, words: list[str], options: dict[str, str]) -> str:
        number = self._number(words[0])
        self.tags[words[0]] = {}
        ((flow, limit),) = options.items()
        return self._do(cmd.AttachConsumer(number, flow, int(limit), "no_ack" in words, held=False))

    def ack(self, words: list[str], options: dict[str, str]) -> str:
        name, *labels = words
        tags = sorted(self.tags[name].get(label, 0) for label in labels)
        return self._do(cmd.Acknowledge(self.numbers[name], [(tag, tag) for tag in tags], 1))

    def grant(self, words: list[str], options: dict[str, str]) -> str:
        return self._do(cmd.Grant(self.numbers[words[0]], int(words[1])))

    def release(self, words: list[str], options: dict[str, str]) -> str:
        credit = int(words[1]) if len(words) > 1 else 0
        return self._do(cmd.Release(self.numbers[words[0]], credit, 1))

    def close(self, words: list[str], options: dict[str, str]) -> str:
        number = self.numbers[words[0]]
        if number in self.queue.consumers.by_attachment:
            return self._do(cmd.DetachConsumer(number))
        return self._do(cmd.DetachProducer(number, forget=True))

    def hold(self, words: list[str], options: dict[str, str]) -> str:
        return self._do(cmd.Hold(self.numbers[words[0]]))

    def proceed(self, words: list[str], options: dict[str, str]) -> str:
        return self._do(cmd.Proceed(self.numbers[words[0]]))

    def purge(self, words: list[str], options: dict[str, str]) -> str:
        return self._do(cmd.Purge())

    def update(self, words: list[str], options: dict[str, str]) -> str:
        return self._do(cmd.Update(updated_attributes(self.queue.attributes, options)))

    def tick(self, words: list[str], options: dict[str, str]) -> str:
        self.now_ms += int(words[0]) * 1000
        return self._do(cmd.Tick())

    def status(self, words: list[str], options: dict[str, str]) -> str:
        queue = self.queue
        return f"{queue.ledger.messages} held, {queue.ledger.bytes_held} bytes, {queue.backlog.count} waiting"

    def crash(self, words: list[str], options: dict[str, str]) -> str:
        return self._recover(None)

    def checkpoint(self, words: list[str], options: dict[str, str]) -> str:
        held = self.queue.ledger.held
        blocks = [e for e in self.log if e.kind == BLOCK and e.ordinal in held]
        state = snapshot(self.queue)
        self.log = blocks
        return self._recover(state)

    def _recover(self, state: bytes | None) -> str:
        recovery = Recovery(1)
        if state is not None:
            recovery.load(state)
        for entry in self.log:
            recovery.apply(entry)
        old = self.queue
        self.queue = recovery.finish(old.name, old.attributes, reap_ms=old.reap_ms)
        rows = [*reversed(self.queue.backlog.returned), *self.queue.backlog.fresh]
        held = self._messages((r.ordinal, r.start, r.end, r.attempts + 1) for r in rows)
        return f"recovered {held or 'nothing'}"

    # ---- outcomes --------------------------------------------------------------------------------------------------

    def _number(self, name: str) -> int:
        self.numbers[name] = self._next
        self.names[self._next] = name
        self._next += 1
        return self._next - 1

    def _do(self, command: cmd.Command) -> str:
        out = self.queue.step(command, now_ms=self.now_ms)
        self.log += out.records
        parts = [f"now {self._effect(e)}" for e in out.immediate]
        parts += self._records(out)
        parts += [text for e in out.after_durable if (text := self._effect(e))]
        first = len(parts) - sum(1 for e in out.after_durable if self._effect(e))
        if first < len(parts):
            parts[first] = f"then {parts[first]}"
        return "; ".join(parts) or "ok"

    def _records(self, out: Outcome) -> Iterable[str]:
        for entry in out.records:
            if entry.kind == BLOCK:
                count = notes.decode_block_meta(entry.meta).messages
                yield f"persist {self._messages([(entry.ordinal, 0, count, 1)])}"
            elif notes.kind_of(entry.meta) == notes.ACKED:
                whole, parts = notes.decode_acked(entry.meta)
                blocks = [f"block {a}" if a == b else f"blocks {a}-{b}" for a, b in whole]
                yield "persist settled " + " ".join([*blocks, self._messages((*part, 1) for part in parts)]).strip()
            elif notes.kind_of(entry.meta) == notes.REFUSED:
                parts = notes.decode_refused(entry.meta)
                yield "persist without " + self._messages((*part, 1) for part in parts)
            else:
                yield "persist handed out"

    def _effect(self, effect: Any) -> str:
        if isinstance(effect, Retire):
            return ""
        if isinstance(effect, Idle):
            return "idle"
        name = self.names[effect.attachment]
        if isinstance(effect, Deliver):
            for index in range(effect.start, effect.end):
                self.tags[name][self.labels[effect.ordinal, index]] = effect.tag + index - effect.start
            return f"deliver {name} {self._messages([(effect.ordinal, effect.start, effect.end, effect.attempt)])}"
        if isinstance(effect, Sent):
            return self._sent(effect, name)
        if isinstance(effect, Acked):
            return f"acked {name}" + (f" ({effect.unknown} unknown)" if effect.unknown else "")
        if isinstance(effect, Released):
            return f"released {name}"
        assert isinstance(effect, Promoted)
        return f"promoted {name}"

    def _sent(self, effect: Sent, name: str) -> str:
        refused = [f"{row.code} for {row.end - row.start}" for row in effect.refused]
        return f"sent {name} {effect.messages}" + (f" ({', '.join(refused)})" if refused else "")

    def _messages(self, rows: Iterable[tuple[int, int, int, int]]) -> str:
        found = [
            self.labels[ordinal, index] + (f"({attempt})" if attempt > 1 else "")
            for ordinal, start, end, attempt in rows
            for index in range(start, end)
        ]
        if len(found) > 12:
            return f"{found[0]}..{found[-1]} ({len(found)})"
        return " ".join(found)


def _labels(word: str) -> list[str]:
    """``m1..m3`` is m1 m2 m3."""
    first, dots, last = word.partition("..")
    if not dots:
        return [word]
    stem = first.rstrip("0123456789")
    return [f"{stem}{n}" for n in range(int(first[len(stem) :]), int(last[len(stem) :]) + 1)]


def _identity(name: str) -> int:
    return int.from_bytes(name.encode(), "big")


_VERBS: dict[str, Callable[[Story, list[str], dict[str, str]], str]] = {
    "queue": Story.make,
    **{
        name: getattr(Story, name)
        for name in (
            "producer", "send", "again", "consume", "ack", "grant", "release", "close", "hold", "proceed", "purge",
            "update", "tick", "status", "crash", "checkpoint",
        )
    },
}  # fmt: skip
