"""One thread: it draws calls, makes them over its own connection, and writes down what it asked and what it got."""

from __future__ import annotations

import json
import os
import random
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import raybroker as rb
from raybroker.errors import BrokerError, TransactionRolledBackError
from tests.api_fuzz.oracle import Note
from tests.api_fuzz.plan import (
    CALLS,
    FORWARDED,
    LARGE_BYTES,
    PASSING,
    QUEUES,
    SUBSCRIPTIONS,
    TARGET,
    TOPIC,
    UNIQUE,
    copies,
)
from tests.contracts.handles import core_of

SLACK_S: Final = 2.0
"""How much longer than its own time-out a call may take, beside what the machine itself was late by."""
SEND_S: Final = 2.0
WAITS_S: Final = 0.1
SHORT_MS: Final = 20
MODES: Final = ("auto", "window", "client", "client", "dups_ok", "transacted", "xa")
CERTAIN: Final = (
    "QuotaExceededError",
    "MessageTooLargeError",
    "ResourceAllocationError",
    "InvalidDestinationError",
    "DestinationPausedError",
    "MessageFormatError",
    "ConfigError",
    "StoreFullError",
    "InvalidSelectorError",
)
"""Errors of a send after which the message is certainly not there."""


SELECTORS: Final[dict[str, Callable[[Any], bool]]] = {
    "JMSPriority > 4": lambda message: message.priority > 4,
    "odd = 1": lambda message: message.properties.get("odd") == 1,
    "odd IS NULL": lambda message: "odd" not in message.properties,
}
"""With what a message that comes has to be."""


class Held(NamedTuple):
    """A message in hand; ``consumer``: that it came by."""

    number: int
    message: Any
    consumer: Any


class Source(NamedTuple):
    """A consumer; ``first``: what is added to the numbers of its messages, which are copies in a subscription."""

    destination: str
    consumer: Any
    first: int = 0
    selector: str | None = None


class Left(Exception):  # noqa: N818 - it is no error
    """Raised in a ``with`` by the application."""


class Notes:
    """Written with one call each, so that a kill takes none that was written."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, kind: str, ids: Sequence[int] = (), **details: Any) -> int:
        at_ns = time.monotonic_ns()
        os.write(self._fd, json.dumps([at_ns, kind, list(ids), details]).encode() + b"\n")
        return at_ns


def read(path: Path) -> Iterator[Note]:
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield Note(*json.loads(line))


def number_of(message: Any) -> int:
    """That of a message, which may have come as text from a client of another language."""
    body = message.body
    number: int = (body if isinstance(body, dict) else json.loads(body))["n"]
    return number


class Player:
    """``connect``: a new connection to the broker; ``lag_s``: how late the machine is at the most, in seconds;
    ``steps``: the machine's clock is put forward and back meanwhile."""

    def __init__(
        self,
        seed: int,
        number: int,
        notes: Notes,
        connect: Callable[..., Any],
        lag_s: Callable[[], float],
        *,
        steps: bool = False,
    ) -> None:
        self._draw = random.Random(f"{seed}/{number}")
        self._next = number * 1_000_000 + seed % 1000 * 1_000
        self._notes = notes
        self._connect = connect
        self._lag_s = lag_s
        self._steps = steps
        self._sent: list[int] = []
        """Numbers with a deduplication id, to be sent again."""
        self._hand: list[Held] = []
        """What the session has handed out and has not settled, for all its consumers."""
        self._staged: list[int] = []
        """What was sent in the transaction."""
        self._staged_persistent = True
        self._connection: Any = None
        self._session: Any = None
        self._consumers: list[Source] = []
        self._links: set[Any] = set()
        """Those over which what is in hand may have come."""
        self._mode = ""
        self._xid: Any = None

    # ---- calls -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _bounded(self, what: str, limit_s: float) -> Iterator[None]:
        """Notes a call that takes longer than its time-out, and an exception that is none of the broker's."""
        lag_s, began = self._lag_s(), time.monotonic()
        try:
            yield
        except BrokerError as error:
            self._notes.write("error", text=f"{what}: {type(error).__name__}: {error}"[:300])
            raise
        except Left:
            raise
        except Exception as error:
            self._notes.write("raw", text=f"{what}: {error!r} {traceback.format_exc(limit=-3)}")
            raise Left from error
        finally:
            took = time.monotonic() - began
            if took > limit_s + SLACK_S + 4 * max(lag_s, self._lag_s()):
                self._notes.write("late", text=f"{what} took {took:.1f} s; its time-out is {limit_s:g} s")

    def play(self, calls: int = CALLS) -> None:
        """Make so many calls; ends early when the process is killed."""
        while calls > 0:
            try:
                calls -= self._with_connection(self._draw.randrange(10, 40))
            except BrokerError:
                calls -= 1

    def _with_connection(self, calls: int) -> int:
        self._mode = self._draw.choice(MODES)
        with self._bounded("connect", 5):
            self._connection = self._connect(xa=self._mode == "xa")
        made = 0
        try:
            self._open_session()
            for made in range(1, calls + 1):  # noqa: B007 - the number of calls that were made
                self._call()
        except (BrokerError, Left):
            pass
        finally:
            self._leave()
        return max(made, 1)

    def _open_session(self) -> None:
        options: dict[str, Any] = {"ack": "client"}
        if self._mode in ("auto", "dups_ok"):
            options["ack"] = self._mode
        elif self._mode == "window":
            options = {"ack": "auto", "ack_window": self._draw.choice((2, 10))}
        elif self._mode == "transacted":
            options = {"transacted": True}
        self._notes.write("session", mode=self._mode)
        self._session = self._connection.session(**({} if self._mode == "xa" else options))
        self._links.clear()
        self._hand.clear()
        self._consumers.clear()
        if self._mode == "xa":
            self._begin_branch()

    def _call(self) -> None:
        work = [self._send] * 6 + [self._send_many] * 2 + [self._send_async] * 2 + [self._receive] * 8
        work += [self._receive_many] * 2 + [self._close_consumer, self._leave_a_consumer]
        if self._mode == "client":
            work += [self._acknowledge] * 3 + [self._one_by_one] * 3 + [self._up_to, self._recover]
        elif self._mode in ("transacted", "xa"):
            work += [self._end] * 4
        self._draw.choice(work + self._beside())()

    def _beside(self) -> list[Callable[[], None]]:
        """Further calls that may be drawn."""
        return []

    def _open_links(self) -> set[Any]:
        return set(core_of(self._connection).channels.open())

    def _notice_links(self) -> None:
        self._links |= self._open_links()

    def _lost_a_link(self) -> bool:
        """Whether what was in hand may have been given back meanwhile."""
        return not self._links <= self._open_links()

    # ---- sending -----------------------------------------------------------------------------------------------------

    def _options(self) -> tuple[int, dict[str, Any]]:
        """A number and the options of its send."""
        draw = self._draw
        options: dict[str, Any] = {"persistent": draw.random() < 0.8}
        if self._sent and draw.random() < 0.15:
            number = draw.choice(self._sent)
            return number, options | {"dedup_id": str(number)}
        self._next += 1
        if draw.random() < 0.2:
            options["dedup_id"] = str(self._next)
            self._sent.append(self._next)
        elif draw.random() < 0.1:
            options["ttl_ms"] = draw.choice((SHORT_MS, 3_600_000))
        if draw.random() < 0.2:
            options["priority"] = draw.randrange(10)
        if draw.random() < 0.15 and "dedup_id" not in options:  # Either names the broker of a message.
            options["unit_of_order"] = draw.choice("xyz")
        if draw.random() < 0.1 and not self._steps:
            options["delivery_delay_ms"] = draw.choice((1, 50))
        if draw.random() < 0.3:
            options["properties"] = {"odd": self._next % 2}
        return self._next, options

    def _queue_for(self, options: dict[str, Any]) -> Any:
        """Where to; what dies in a topic would say nothing of the subscription, so nothing expires there."""
        if "dedup_id" in options:
            return UNIQUE
        found = self._draw.choice((*QUEUES, *QUEUES, FORWARDED, PASSING, TOPIC))
        return rb.Topic(TOPIC) if found == TOPIC and "ttl_ms" not in options else found.replace(TOPIC, FORWARDED)

    def _body(self, number: int) -> dict[str, Any]:
        return {"n": number, "pad": "." * LARGE_BYTES} if self._draw.random() < 0.02 else {"n": number}

    def _asked(self, ids: list[int], options: dict[str, Any], target: Any) -> list[int]:
        """What is noted as sent: the numbers, or those of their copies in each subscription of the topic."""
        short = options.get("ttl_ms") == SHORT_MS or ("ttl_ms" in options and self._steps)
        persistent, name = options.get("persistent", True), str(target)
        if name == TOPIC:
            self._notes.write("send", copies(ids, 0), persistent=persistent, queue=name, loose=True)
            ids = [number for first in range(1, len(SUBSCRIPTIONS)) for number in copies(ids, first)]
        self._notes.write("send", ids, short=short, persistent=persistent, queue=name, loose=name == PASSING)
        return ids

    def _confirmed(self, ids: list[int], *, persistent: bool) -> None:
        if self._mode in ("transacted", "xa"):
            self._staged += ids
            self._staged_persistent &= persistent
        elif persistent:
            self._notes.write("sent", ids, persistent=True)
        # A send that is not persistent returns before the broker has decided: nothing is known of it.

    def _not_sent(self, ids: list[int], error: BrokerError) -> None:
        if type(error).__name__ in CERTAIN:
            self._notes.write("refused", ids)

    def _send(self) -> None:
        number, options = self._options()
        queue = self._queue_for(options)
        ids = self._asked([number], options, queue)
        try:
            with self._bounded(f"send to {queue}", SEND_S):
                self._session.producer(queue).send(self._body(number), **options)
        except BrokerError as error:
            self._not_sent(ids, error)
            return
        self._confirmed(ids, persistent=options["persistent"])

    def _send_many(self) -> None:
        ids = list(range(self._next + 1, self._next + 1 + self._draw.randrange(1, 30)))
        self._next = ids[-1]
        persistent = self._draw.random() < 0.8
        target = self._queue_for({"ttl_ms": 0} if self._draw.random() < 0.5 else {})
        noted = self._asked(ids, {"persistent": persistent}, target)
        try:
            with self._bounded("send_many", SEND_S * len(ids)):
                self._session.producer(target).send_many([self._body(number) for number in ids], persistent=persistent)
        except BrokerError:
            return  # Some of them may be there.
        self._confirmed(noted, persistent=persistent)

    def _send_async(self) -> None:
        given = []
        for _ in range(self._draw.randrange(1, 8)):
            number, options = self._options()
            target = self._queue_for(options)
            ids = self._asked([number], options, target)
            try:
                with self._bounded("send_async", SEND_S):
                    future = self._session.producer(target).send_async(self._body(number), **options)
                    given.append((ids, options, future))
            except BrokerError as error:
                self._not_sent(ids, error)
        for ids, options, future in given:
            try:
                with self._bounded("future.result()", SEND_S * len(given)):
                    future.result(60)
            except BrokerError as error:
                self._not_sent(ids, error)
                continue
            self._confirmed(ids, persistent=options["persistent"])

    # ---- receiving ---------------------------------------------------------------------------------------------------

    def _source(self) -> Source:
        if len(self._consumers) < 3 and (not self._consumers or self._draw.random() < 0.2):
            self._consumers.append(self._new_source())
        return self._draw.choice(self._consumers)

    def _new_source(self) -> Source:
        options: dict[str, Any] = {"prefetch": self._draw.choice((1, 2, 50))} if self._draw.random() < 0.5 else {}
        if self._mode == "client" and self._draw.random() < 0.2:
            options["ack_timeout_ms"] = 200
        name = self._draw.choice((*QUEUES, *QUEUES, UNIQUE, UNIQUE, TARGET, TARGET, PASSING, TOPIC))
        with self._bounded("consumer", 5):
            if name == TOPIC:
                at = self._draw.randrange(len(SUBSCRIPTIONS))
                consumer = self._session.shared_durable_consumer(rb.Topic(TOPIC), SUBSCRIPTIONS[at], **options)
                return Source(name, consumer, copies([0], at)[0])
            selector = self._draw.choice(list(SELECTORS)) if self._draw.random() < 0.15 else None
            return Source(name, self._session.consumer(name, selector, **options), 0, selector)

    def _receive(self) -> None:
        self._get(self._source(), lambda source: [source.consumer.receive(WAITS_S)], "receive")

    def _receive_many(self) -> None:
        most = self._draw.randrange(1, 20)
        self._get(self._source(), lambda source: source.consumer.receive_many(most, timeout=WAITS_S), "receive_many")

    def _get(self, source: Source, call: Callable[[Source], list[Any]], what: str) -> None:
        before = [held.number for held in self._hand] if self._mode == "auto" else []
        self._notes.write("settle", before)
        began_ns = time.monotonic_ns()
        self._notice_links()
        there = self._open_links()  # What comes over one of them may go back before it is in hand.
        with self._bounded(what, WAITS_S):
            messages = [message for message in call(source) if message is not None]
        if self._mode == "auto":  # Confirmed when the application comes back for more.
            if not self._lost_a_link():
                self._notes.write("settled", before)
            self._hand.clear()
            self._links = there
        self._notice_links()
        self._took(source, messages, began_ns)

    def _took(self, source: Source, messages: list[Any], began_ns: int) -> None:
        ids = [source.first + number_of(message) for message in messages]
        for number, message in zip(ids, messages, strict=True):
            if source.selector is not None and not SELECTORS[source.selector](message):
                self._notes.write("raw", text=f"{number} came to a consumer with the selector {source.selector}")
        self._notes.write(
            "got",
            ids,
            flags=[message.redelivered for message in messages],
            began_ns=began_ns,
            counts=[message.delivery_count for message in messages],
            queues=sorted({message.destination for message in messages}),
        )
        if self._mode in ("window", "dups_ok"):
            self._notes.write("settle", ids)
        self._hand += [Held(number, message, source.consumer) for number, message in zip(ids, messages, strict=True)]

    def _settle(self, ids: list[int], call: Callable[[], Any], what: str) -> bool:
        """Whether it was confirmed."""
        self._notes.write("settle", ids)
        with self._bounded(what, 5):
            call()
        self._notes.write("settled", ids)
        return True

    def _acknowledge(self) -> None:
        if self._hand:
            taken, self._hand = self._hand, []
            self._settle([held.number for held in taken], taken[-1].message.acknowledge, "acknowledge()")

    def _up_to(self) -> None:
        if self._hand:
            at = self._draw.randrange(len(self._hand))
            taken, self._hand = self._hand[: at + 1], self._hand[at + 1 :]
            self._settle([held.number for held in taken], taken[-1].message.acknowledge_up_to, "acknowledge_up_to()")

    def _one_by_one(self) -> None:
        if not self._hand:
            return
        at = self._draw.randrange(len(self._hand))
        how = self._draw.choice(("acknowledge", "acknowledge", "release", "fail", "reject", "extend"))
        if how == "extend":
            with self._bounded("extend", 5):
                self._hand[at].message.extend()
            return
        number, message, _ = self._hand.pop(at)
        if message.destination == TOPIC and how in ("fail", "reject"):
            how = "release"
        if how == "acknowledge":
            self._settle([number], message.acknowledge_this, "acknowledge_this()")
            return
        self._notes.write(how, [number])
        with self._bounded(how, 5):
            getattr(message, how)()

    def _recover(self) -> None:
        with self._bounded("recover", 5):
            self._session.recover()
        self._hand.clear()

    def _close_consumer(self) -> None:
        if self._consumers and self._mode == "client":
            source = self._consumers.pop(self._draw.randrange(len(self._consumers)))
            self._notes.write("close", queue=source.destination)
            with self._bounded("consumer.close()", 5):
                source.consumer.close()
            self._forget(source.consumer)

    def _leave_a_consumer(self) -> None:
        """``with consumer`` that is left by an exception: what is in hand is not acknowledged."""
        if not self._consumers or self._mode not in ("client", "auto"):
            return
        source = self._consumers.pop(self._draw.randrange(len(self._consumers)))
        self._notes.write("leave", queue=source.destination)
        try:
            with self._bounded("leaving a consumer", 5), source.consumer:
                raise Left
        except Left:
            self._forget(source.consumer)

    def _forget(self, consumer: Any) -> None:
        """The consumer is gone, and what it had handed out went back."""
        self._hand = [held for held in self._hand if held.consumer is not consumer]

    # ---- transactions ------------------------------------------------------------------------------------------------

    def _begin_branch(self) -> None:
        self._xid = rb.Xid(7, os.urandom(8), b"b")
        with self._bounded("xa.start", 5):
            self._session.xa.start(self._xid)

    def _end(self) -> None:
        ids = [held.number for held in self._hand]
        sent, persistent = list(self._staged), self._staged_persistent
        self._hand.clear()
        self._staged.clear()
        self._staged_persistent = True
        commit = self._draw.random() < 0.7
        self._notes.write("settle", ids if commit else ())
        try:
            with self._bounded("the end of a transaction", 10):
                (self._end_branch if self._mode == "xa" else self._end_local)(commit)
        except TransactionRolledBackError:
            self._notes.write("unsettled", ids)
            self._notes.write("refused", sent)
            if self._mode == "xa":
                self._begin_branch()
            return
        if commit:
            self._notes.write("settled", ids)
            if persistent:
                self._notes.write("sent", sent, persistent=True)
        else:
            self._notes.write("refused", sent)
        if self._mode == "xa":
            self._begin_branch()

    def _end_local(self, commit: bool) -> None:
        (self._session.commit if commit else self._session.rollback)()

    def _end_branch(self, commit: bool) -> None:
        xa = self._session.xa
        xa.end(self._xid)
        if not commit:
            xa.rollback(self._xid)
        elif self._draw.random() < 0.5:
            xa.commit(self._xid, True)
        elif xa.prepare(self._xid) == 0:
            xa.commit(self._xid)

    # ---- the end -----------------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Close as an application would, or by an exception."""
        ids = [held.number for held in self._hand]
        by_exception = self._draw.random() < 0.3
        confirms = self._mode in ("auto", "window", "dups_ok") and not by_exception
        self._notes.write("settle", ids if confirms else ())
        lost = self._lost_a_link()
        try:
            with self._bounded("close()", 10):
                if by_exception:
                    try:
                        with self._connection:
                            raise Left
                    except Left:
                        pass
                else:
                    self._connection.close()
        except BrokerError:
            return
        finally:
            self._hand.clear()
            self._staged.clear()
            self._staged_persistent = True
        if confirms and self._mode == "auto" and not lost:
            self._notes.write("settled", ids, auto=True)
