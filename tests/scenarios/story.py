"""Plays a story about one destination: each line is a command and what the core decided, ``command -> outcome``.

Verbs:

    queue NAME [attribute=value …]      a new queue; ``auto=SECONDS`` makes it auto-created with that reap time
    topic NAME [attribute=value …]      a new topic
    producer P                          a producer opens the destination
    send P a b c [volatile] [size=N]    one block with messages a, b, c (sizes: N bytes, else the length of the label)
        a!9 a@U                         … message a has priority 9, or unit of order U
        ttl=S delay=S                   … that expire, or become visible, after so many seconds
        txn=T from=X ids                … in a transaction; from a connection; with their labels as deduplication ids
        NAME=VALUE                      … with that property
    send P m1..m1000                    one block for each 500 messages
    again P a                           the producer sends the block that starts with a once more, over a new connection
    consume C credit=N|prefetch=N [no_ack] [selector="…"] [lease=S] [owner=SESSION] [drain] [remote] [recalls] [shares]
        bytes=N                         … with so many bytes in its buffer at most
        costs=N                         … with messages in its buffer that cost so much at most
    subscribe C … [name=N] [client=ID] [durable] [shared] [nolocal=X]        a consumer of a topic
    unsubscribe CLIENT NAME
    ack C a b | ack C a..b [quietly]    acknowledge these messages, asking for a confirmation unless quietly
    reject|putback|fail|expired C a b [delay=S]      the other outcomes
    recalled C a b                      it was asked for messages, and gives these back
    leave C | stay C                    its node is drained, or is not any more
    begun C a | extend C a b            the application has got messages up to a; it is still at work on these
    taken C a                           nothing up to a is in its buffer any more
    grant C N                           the consumer asks for N more (credit), or polls for N (prefetch=0)
    drain C N                           … for N of what there is now, and nothing else
    release C [credit] [consumed=a] [delay=S]        the consumer gives everything back (recover)
    close X | lost X                    a producer or consumer goes away, or its connection does
    hold C | proceed C                  stop and start delivery
    stage T C a b | prepare T | commit T | rollback T [delay=S]
    publish N [back]                    a queue with versionKey has this version now
    pause WHICH [until=S] | resume WHICH             production, consumption or insertion
    purge | update attribute=value … | tick SECONDS | scan SECONDS | poison N | status
    crash                               what was not recorded is lost; a new host recovers the destination
    checkpoint                          like crash, from a snapshot taken first

An outcome reads in the order in which things happen: ``now`` what is released at once, ``persist`` what is recorded,
``then`` what waits for that.  A redelivered message carries its attempt, as in ``m1(2)``.  Dead messages are buried at
once.  ``#`` starts a comment.
"""

from __future__ import annotations

import shlex
from array import array
from collections.abc import Callable
from typing import Any

from raybroker.core import command as cmd
from raybroker.core.blocks.block_entry import Columns
from raybroker.core.destination import Destination
from raybroker.core.durable.recovery import KINDS, DestinationRecovery
from raybroker.core.durable.snapshot import snapshot
from raybroker.core.invariants import check
from raybroker.core.outcome import DeadLetter
from raybroker.core.subscription import Subscription
from raybroker.model.blocks.record import BLOCK, LogEntry
from raybroker.model.errors import BrokerError
from raybroker.model.settings.settings import destination_attributes, updated_attributes
from tests.scenarios.host_story import HostStory
from tests.scenarios.telling import Telling, labels_of
from tests.unit.core.driven_destination import Rows

WIDTH = 44
"""Where the arrows of a story stand, when its commands are short enough."""
_KNOWN = frozenset(("size", "ttl", "delay", "txn", "from"))


def play(text: str) -> str:
    """The story with the outcomes that the core, or a host, gives now."""
    first = next((line for line in text.splitlines() if line and not line.startswith("#")), "")
    story = HostStory() if first.split()[:1] == ["host"] else Story()
    return "\n".join(_line(story, line) for line in text.splitlines()) + "\n"


def _line(story: Story | HostStory, line: str) -> str:
    before, arrow, after = line.partition("->")
    command = before.partition("#")[0].strip()
    if not command:
        return line.rstrip()
    comment = after.partition("#")[2] if arrow else before.partition("#")[2]
    outcome = story.tell(command)
    return f"{command:{WIDTH}} -> {outcome}" + (f"    # {comment.strip()}" if comment.strip() else "")


class Story:
    """A destination with names for everything in it."""

    def __init__(self) -> None:
        self.destination: Destination
        self.log: list[LogEntry] = []
        self.telling = Telling()
        self.numbers: dict[str, int] = {}
        self.contents: dict[int, Any] = {}
        self.blocks: dict[tuple[str, str], tuple[cmd.Send, list[str]]] = {}
        self.next_seq: dict[str, int] = {}
        self.decided: dict[int, bool] = {}
        self.state: bytes | None = None
        """The last checkpoint."""
        self.now_ms = 0
        self._next = 1

    def tell(self, line: str) -> str:
        verb, *words = shlex.split(line)
        options = dict(w.split("=", 1) for w in words if "=" in w)
        plain = [label for w in words if "=" not in w for label in labels_of(w)]
        try:
            found: str = _VERBS[verb](self, plain, options)
        except BrokerError as error:
            found = f"refused: {error.code}"
        check(self.destination)
        return found

    # ---- destinations ----------------------------------------------------------------------------------------------

    def queue(self, words: list[str], options: dict[str, str]) -> str:
        return self._make("queue", words[0], options)

    def topic(self, words: list[str], options: dict[str, str]) -> str:
        return self._make("topic", words[0], options)

    def _make(self, kind: str, name: str, options: dict[str, str]) -> str:
        auto = options.pop("auto", None)
        reap_ms = int(auto) * 1000 if auto else None
        attributes = destination_attributes(options, type="topic" if kind == "topic" else "queue")
        self._use(KINDS[kind](1, name, attributes, reap_ms=reap_ms))
        return "ok"

    def _use(self, destination: Destination) -> None:
        self.destination = destination
        destination.current.read_headers = self.contents.get

    # ---- producers -------------------------------------------------------------------------------------------------

    def producer(self, words: list[str], options: dict[str, str]) -> str:
        number = self._number(words[0])
        return self._do(cmd.AttachProducer(number, _identity(words[0])))

    def send(self, words: list[str], options: dict[str, str]) -> str:
        name, *labels = [w for w in words if w not in ("volatile", "ids")]
        outcomes = []
        for at in range(0, len(labels), 500):
            levels = [int(label.partition("!")[2] or 4) for label in labels[at : at + 500]]
            units = [label.partition("!")[0].partition("@")[2] or None for label in labels[at : at + 500]]
            part = [label.partition("!")[0].partition("@")[0] for label in labels[at : at + 500]]
            first = self.next_seq.get(name, 1)
            self.next_seq[name] = first + len(part)
            sizes = [int(options["size"]) if "size" in options else len(label) for label in part]
            properties = {key: _value(text) for key, text in options.items() if key not in _KNOWN}
            command = cmd.Send(
                self.numbers[name],
                _identity(name),
                first,
                sizes,
                "volatile" not in words,
                1,
                columns=self._columns(levels, units, options),
                content=Rows([properties] * len(part)),
                origin=(options.get("from", name), options.get("from", name)),
                txn=_number_of(options.get("txn", "")),
                dedup_ids=part if "ids" in words else None,
            )
            self.blocks[name, part[0]] = command, part
            outcomes.append(self._send(command, part))
        return "; ".join(outcomes)

    def _columns(self, levels: list[int], units: list[str | None], options: dict[str, str]) -> Columns:
        def times(name: str) -> array[int] | None:
            return array("Q", [self.now_ms + _ms(options[name])] * len(levels)) if name in options else None

        same = len(set(levels)) == 1
        return Columns(
            levels[0] if same else 4,
            None if same else bytes(levels),
            times("ttl"),
            times("delay"),
            tuple(units) if any(units) else None,
        )

    def _send(self, command: cmd.Send, labels: list[str]) -> str:
        ordinal = self.destination.block_index.next_ordinal
        self.telling.name_block(ordinal, labels)
        self.contents[ordinal] = command.content
        return self._do(command)

    def again(self, words: list[str], options: dict[str, str]) -> str:
        name, label = words
        command, labels = self.blocks[name, label]
        number = self._number(name)
        self._do(cmd.AttachProducer(number, _identity(name)))
        return self._send(command._replace(attachment=number), labels)

    # ---- consumers -------------------------------------------------------------------------------------------------

    def consume(self, words: list[str], options: dict[str, str]) -> str:
        return self._attach(words, options, options.pop("selector", None), None)

    def subscribe(self, words: list[str], options: dict[str, str]) -> str:
        own = options.pop("nolocal", "")
        subscription = Subscription(
            options.pop("client", ""),
            options.pop("name", ""),
            "durable" in words,
            "shared" in words,
            options.pop("selector", None),
            bool(own),
            own,
        )
        return self._attach(words, options, None, subscription)

    def _attach(
        self, words: list[str], options: dict[str, str], selector: str | None, subscription: Subscription | None
    ) -> str:
        number = self._number(words[0])
        lease_ms, owner = _ms(options.pop("lease", "0")), options.pop("owner", "")
        buffer_bytes, buffer_cost = int(options.pop("bytes", "0")), int(options.pop("costs", "0"))
        ((flow, limit),) = options.items()
        command = cmd.AttachConsumer(
            number,
            flow,
            int(limit),
            "no_ack" in words,
            False,
            selector,
            subscription,
            lease_ms,
            "drain" in words,
            owner,
            "remote" in words,
            "recalls" in words or "shares" in words,
            "shares" in words,
            buffer_bytes,
            buffer_cost,
        )
        return self._do(command)

    def unsubscribe(self, words: list[str], options: dict[str, str]) -> str:
        return self._do(cmd.Unsubscribe(*words))

    def _ranges(self, name: str, labels: list[str]) -> list[tuple[int, int]]:
        tags = sorted(self.telling.tags[name].get(label, 0) for label in labels)
        return [(tag, tag) for tag in tags]

    def ack(self, words: list[str], options: dict[str, str]) -> str:
        name, *labels = [w for w in words if w != "quietly"]
        request = int("quietly" not in words)
        return self._do(cmd.Acknowledge(self.numbers[name], self._ranges(name, labels), request))

    def _outcome(self, outcome: str, words: list[str], options: dict[str, str]) -> str:
        name, *labels = words
        delay_ms = _ms(options.get("delay", "-0.001"))
        ranges = self._ranges(name, labels)
        return self._do(cmd.Settle(self.numbers[name], ranges, 1, outcome, delay_ms, options.get("reason", "")))

    def recalled(self, words: list[str], options: dict[str, str]) -> str:
        return self._do(cmd.Recalled(self.numbers[words[0]], self._ranges(words[0], words[1:])))

    def leave(self, words: list[str], options: dict[str, str]) -> str:
        return self._do(cmd.LeaveNode(self.numbers[words[0]], leaving=True))

    def stay(self, words: list[str], options: dict[str, str]) -> str:
        return self._do(cmd.LeaveNode(self.numbers[words[0]], leaving=False))

    def begun(self, words: list[str], options: dict[str, str]) -> str:
        name, label = words
        return self._do(cmd.Begun(self.numbers[name], self.telling.tags[name][label]))

    def taken(self, words: list[str], options: dict[str, str]) -> str:
        name, label = words
        return self._do(cmd.Taken(self.numbers[name], self.telling.tags[name][label]))

    def extend(self, words: list[str], options: dict[str, str]) -> str:
        return self._do(cmd.Extend(self.numbers[words[0]], self._ranges(words[0], words[1:])))

    def grant(self, words: list[str], options: dict[str, str]) -> str:
        return self._do(cmd.Grant(self.numbers[words[0]], int(words[1])))

    def release(self, words: list[str], options: dict[str, str]) -> str:
        credit = int(words[1]) if len(words) > 1 else 0
        consumed = self.telling.tags[words[0]][options["consumed"]] if "consumed" in options else 0
        return self._do(cmd.Release(self.numbers[words[0]], credit, 1, consumed, _ms(options.get("delay", "0"))))

    def close(self, words: list[str], options: dict[str, str], *, lost: bool = False) -> str:
        number = self.numbers[words[0]]
        if number in self.destination.queue_of:
            return self._do(cmd.DetachConsumer(number, lost))
        return self._do(cmd.DetachProducer(number, forget=not lost))

    def lost(self, words: list[str], options: dict[str, str]) -> str:
        return self.close(words, options, lost=True)

    def hold(self, words: list[str], options: dict[str, str]) -> str:
        return self._do(cmd.Hold(self.numbers[words[0]]))

    def proceed(self, words: list[str], options: dict[str, str]) -> str:
        return self._do(cmd.Proceed(self.numbers[words[0]]))

    # ---- transactions ----------------------------------------------------------------------------------------------

    def stage(self, words: list[str], options: dict[str, str]) -> str:
        txn, name, *labels = words
        return self._do(cmd.StageAcks(_number_of(txn), self.numbers[name], self._ranges(name, labels)))

    def prepare(self, words: list[str], options: dict[str, str]) -> str:
        return self._do(cmd.Prepare(_number_of(words[0])))

    def commit(self, words: list[str], options: dict[str, str]) -> str:
        return self._decide(words[0], True, 0)

    def rollback(self, words: list[str], options: dict[str, str]) -> str:
        return self._decide(words[0], False, _ms(options.get("delay", "0")))

    def _decide(self, name: str, commit: bool, delay_ms: int) -> str:
        self.decided[_number_of(name)] = commit
        return self._do(cmd.Decide(_number_of(name), commit, delay_ms))

    # ---- administration and time -----------------------------------------------------------------------------------

    def drain(self, words: list[str], options: dict[str, str]) -> str:
        return self._do(cmd.Drain(self.numbers[words[0]], int(words[1])))

    def purge(self, words: list[str], options: dict[str, str]) -> str:
        return self._do(cmd.Purge())

    def publish(self, words: list[str], options: dict[str, str]) -> str:
        return self._do(cmd.PublishVersion(int(words[0]), back="back" in words))

    def pause(self, words: list[str], options: dict[str, str]) -> str:
        return self._do(cmd.Pause(words[0], self.now_ms + _ms(options["until"]) if "until" in options else 0))

    def resume(self, words: list[str], options: dict[str, str]) -> str:
        return self._do(cmd.Resume(words[0]))

    def update(self, words: list[str], options: dict[str, str]) -> str:
        return self._do(cmd.Update(updated_attributes(self.destination.attributes, options, self.destination.kind)))

    def tick(self, words: list[str], options: dict[str, str]) -> str:
        self.now_ms += _ms(words[0])
        return self._do(cmd.Tick())

    def scan(self, words: list[str], options: dict[str, str]) -> str:
        self.destination.expiry.scan_ms = _ms(words[0])
        return "ok"

    def poison(self, words: list[str], options: dict[str, str]) -> str:
        self.destination.policy.rollbacks_max = int(words[0])
        return "ok"

    def status(self, words: list[str], options: dict[str, str]) -> str:
        return self.telling.status(self.destination)

    def crash(self, words: list[str], options: dict[str, str]) -> str:
        return self._recover()

    def checkpoint(self, words: list[str], options: dict[str, str]) -> str:
        held = self.destination.block_index.held
        self.state = snapshot(self.destination)
        self.log = [e for e in self.log if e.kind == BLOCK and e.ordinal in held]
        self.decided.clear()
        return self._recover()

    def _recover(self) -> str:
        recovery = DestinationRecovery(1)
        if self.state is not None:
            recovery.load(self.state)
        for entry in self.log:
            recovery.apply(entry)
        old = self.destination
        self._use(
            recovery.finish(
                old.name, old.attributes, kind=old.kind, reap_ms=old.reap_ms, now_ms=self.now_ms, decided=self.decided
            )
        )
        return self.telling.recovered(self.destination)

    # ---- steps -----------------------------------------------------------------------------------------------------

    def _number(self, name: str) -> int:
        number = self.numbers[name] = self._next
        self.telling.name_attachment(number, name)
        self._next += 1
        return number

    def _do(self, command: cmd.Command) -> str:
        out = self.destination.step(command, now_ms=self.now_ms)
        self.log += out.records
        parts = self.telling.outcome(out)
        for effect in out.immediate:
            if isinstance(effect, DeadLetter):
                settle = cmd.SettleDeadLetters(effect.queue, effect.ordinal, effect.mask)
                buried = self.destination.step(settle, now_ms=self.now_ms)
                self.log += buried.records
                parts += self.telling.outcome(buried)
        return "; ".join(parts) or "ok"


def _identity(name: str) -> int:
    return int.from_bytes(name.encode(), "big")


def _number_of(transaction: str) -> int:
    return int.from_bytes(transaction.encode(), "big")


def _ms(seconds: str) -> int:
    return round(float(seconds) * 1000)


def _value(text: str) -> Any:
    return int(text) if text.isdigit() else text


_VERBS: dict[str, Callable[[Story, list[str], dict[str, str]], str]] = {
    **{
        name: getattr(Story, name)
        for name in (
            "queue",
            "topic",
            "producer",
            "send",
            "again",
            "consume",
            "subscribe",
            "unsubscribe",
            "ack",
            "begun",
            "taken",
            "recalled",
            "leave",
            "stay",
            "extend",
            "grant",
            "drain",
            "release",
            "close",
            "lost",
            "hold",
            "proceed",
            "stage",
            "prepare",
            "commit",
            "rollback",
            "purge",
            "publish",
            "pause",
            "resume",
            "update",
            "tick",
            "scan",
            "poison",
            "status",
            "crash",
            "checkpoint",
        )
    },
    "reject": lambda story, words, options: story._outcome("reject", words, options),
    "putback": lambda story, words, options: story._outcome("release", words, options),
    "fail": lambda story, words, options: story._outcome("fail", words, options),
    "expired": lambda story, words, options: story._outcome("expired", words, options),
}
