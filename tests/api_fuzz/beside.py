"""What a thread does beside sending and receiving: administration, listeners, links that are cut, what is temporary."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from raybroker.errors import BrokerError, ConnectionLostError
from raybroker.model.naming.names import DEAD_MESSAGE_QUEUE
from tests.api_fuzz.plan import LIMITS, PASSING, QUEUES, SUBSCRIPTIONS, TARGET, TOPIC, UNIQUE
from tests.api_fuzz.player import SEND_S, Player, number_of
from tests.contracts.handles import core_of, cut

LISTENS_S: Final = 0.1
TEMPORARY_S: Final = 5.0
"""How long a message to a temporary queue may take; nobody else has to do anything for it."""
LISTENER_MODES: Final = ("auto", "auto", "dups_ok", "client", "transacted")
MESSAGE_BYTES: Final = 500


CUT: Final = object()
"""In place of a link whose end is not noticed yet."""


class Refused(Exception):  # noqa: N818 - it is no error
    """Raised by a listener that cannot handle its message."""


class BusyPlayer(Player):
    """A player that does everything."""

    def _beside(self) -> list[Callable[[], None]]:
        return [self._browse, self._admin, self._admin, self._listen, self._temporary, self._cut, self._stop]

    def _browse(self) -> None:
        with self._bounded("browsing", 10):
            for _ in self._session.browser(self._draw.choice(QUEUES)):
                pass

    def _stop(self) -> None:
        """Nothing is handed out while the connection is stopped."""
        with self._bounded("stop and start", 2):
            self._connection.stop()
            self._connection.start()

    def _cut(self) -> None:
        """All links of the connection end, as by a network that fails; handles come back by themselves."""
        if self._draw.random() < 0.3 and core_of(self._connection).channels.all():
            self._notes.write("cut")
            self._links.add(CUT)
            cut(self._connection)

    def _temporary(self) -> None:
        """To a temporary queue and back: it comes, unless the link has been lost meanwhile."""
        if self._mode in ("transacted", "xa"):
            return
        self._next += 1
        with self._bounded("temporary_queue", 5):
            queue = self._session.temporary_queue()
        number = self._asked([self._next], {}, PASSING)[0]
        with self._connection.session(ack="client") as session:
            consumer = session.consumer(queue)
            links = self._open_links()
            with self._bounded("send to a temporary queue", SEND_S):
                session.producer(queue).send(self._body(number))
            with self._bounded("receive of a temporary queue", TEMPORARY_S):
                message = consumer.receive(TEMPORARY_S)
            if message is None and links <= self._open_links():
                self._notes.write("raw", text=f"{number} did not come to a temporary queue")
            if message is not None:
                self._notes.write(
                    "got", [number_of(message)], flags=[message.redelivered], began_ns=time.monotonic_ns()
                )
                message.acknowledge()
            consumer.close()
        with self._bounded("delete of a temporary queue", 5):
            queue.delete()

    # ---- listeners ---------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """A session of its own that calls a listener for a while; it fails now and then."""
        draw, mode = self._draw, self._draw.choice(LISTENER_MODES)
        if self._mode == "xa":
            return
        queue = draw.choice((*QUEUES, UNIQUE, TARGET))
        with self._bounded("session", 5):
            session = self._connection.session(**({"transacted": True} if mode == "transacted" else {"ack": mode}))
        began_ns = time.monotonic_ns()
        fails = random.Random(draw.random())
        done: list[int] = []

        def heard(message: Any) -> Any:
            number = number_of(message)
            self._notes.write("got", [number], flags=[message.redelivered], began_ns=began_ns, listener=mode)
            if number in done:
                done.remove(number)
            if fails.random() < 0.1:
                if mode == "dups_ok":
                    self._notes.write("settle", [number])
                raise Refused
            self._notes.write("settle", () if mode == "client" else [number])
            done.append(number)
            if mode == "client" and fails.random() < 0.5:
                taken, done[:] = list(done), []
                self._notes.write("settle", taken)
                return message.acknowledge()  # With aio it is what the session awaits before the next call.
            return None

        links = self._open_links()
        with self._bounded("consumer of a listener", 5):
            consumer = session.consumer(queue, prefetch=draw.choice((None, 1, 20)))
        with self._bounded("on_message", 5):
            consumer.on_message(heard, retry_on=Refused, backoff=0.05)
        links |= self._open_links()
        time.sleep(LISTENS_S)
        with self._bounded("close of a listening session", 10):
            session.close()
        if mode == "auto" and links <= self._open_links():
            self._notes.write("settled", done)

    # ---- administration ----------------------------------------------------------------------------------------------

    def _admin(self) -> None:
        work: list[Callable[[Any], None]] = [
            self._query,
            self._query,
            self._purge,
            self._move,
            self._pause,
            self._retry,
            self._delete,
            self._update,
            self._compact,
            self._destroy,
            self._unsubscribe,
        ]
        call = self._draw.choice(work)
        with self._bounded(call.__name__.strip("_"), 10):
            call(self._connection.admin())

    def _query(self, admin: Any) -> None:
        name = self._draw.choice(QUEUES)
        what = self._draw.choice(("query", "list", "consumers", "browse", "check", "subscriptions", "transactions"))
        if what == "query":
            admin.query_destination("queue", name)
        elif what == "list":
            admin.list_destinations()
        elif what == "consumers":
            admin.list_consumers(name)
        elif what == "browse":
            admin.browse_messages("queue", name, max=20)
        elif what == "check":
            admin.check_broker()
        elif what == "subscriptions":
            admin.list_subscriptions(TOPIC)
        else:
            admin.list_transactions()

    def _purge(self, admin: Any) -> None:
        if self._draw.random() < 0.2:
            queue = self._draw.choice(QUEUES)
            with self._gone(queue):
                admin.purge_destination("queue", queue)

    @contextmanager
    def _gone(self, queue: str) -> Iterator[None]:
        """What the queue holds meanwhile may be gone."""
        self._notes.write("purge", queue=queue)
        try:
            yield
        finally:
            self._notes.write("purge", queue=queue)

    @contextmanager
    def _moving(self, queue: str, to: str) -> Iterator[None]:
        self._notes.write("moves", queue=queue, to=to)
        try:
            yield
        except ConnectionLostError:
            raise  # It may have stopped half-way, and then there are two copies of some.
        except BrokerError:
            self._notes.write("moved", queue=queue)
            raise
        self._notes.write("moved", queue=queue)

    def _move(self, admin: Any) -> None:
        queue, other = self._draw.sample(QUEUES, 2)
        admin.pause_destination("queue", queue, which="consumers")
        try:
            with self._moving(queue, other):
                admin.move_messages("queue", queue, other, selector=self._draw.choice((None, "odd = 1")))
        finally:
            admin.resume_destination("queue", queue)

    def _retry(self, admin: Any) -> None:
        """Dead messages go back to where they died."""
        with self._moving(DEAD_MESSAGE_QUEUE, ""):
            admin.retry_messages()

    def _delete(self, admin: Any) -> None:
        if self._draw.random() < 0.8:
            return
        queue = self._draw.choice(QUEUES)
        admin.pause_destination("queue", queue, which="consumers")
        try:
            with self._gone(queue):
                admin.delete_messages("queue", queue, "odd = 1")
        finally:
            admin.resume_destination("queue", queue)

    def _pause(self, admin: Any) -> None:
        queue, which = self._draw.choice(QUEUES), self._draw.choice(("consumers", "producers", "all"))
        admin.pause_destination("queue", queue, which=which)
        admin.resume_destination("queue", queue)

    def _update(self, admin: Any) -> None:
        """A limit changes while the queue is in use."""
        draw = self._draw
        admin.update_destination(
            "queue",
            draw.choice(QUEUES),
            **draw.choice(
                (
                    {"consumerFlowLimit": draw.choice((1, 10, 1000))},
                    {"redeliveryLimit": draw.choice((1, 20))},
                    {"maxNumMsgs": draw.choice((5, 50, -1)), "limitBehavior": draw.choice(LIMITS)},
                    {"maxTotalMsgBytes": draw.choice((10 * MESSAGE_BYTES, -1)), "limitBehavior": draw.choice(LIMITS)},
                )
            ),
        )

    def _compact(self, admin: Any) -> None:
        admin.compact_destination("queue", self._draw.choice(QUEUES))

    def _destroy(self, admin: Any) -> None:
        admin.destroy_destination("queue", PASSING)

    def _unsubscribe(self, admin: Any) -> None:
        if self._draw.random() < 0.5:
            admin.destroy_subscription(SUBSCRIPTIONS[0], topic=TOPIC)
        else:
            self._notes.write("purge", queue=TOPIC)
            admin.purge_subscription(SUBSCRIPTIONS[1], topic=TOPIC)
            self._notes.write("purge", queue=TOPIC)


def subscribed(admin: Any, **attributes: Any) -> None:
    """The topic, and its subscriptions that are always there."""
    admin.create_destination("topic", TOPIC, if_exists="keep", **attributes)
    known = {row["name"] for row in admin.list_subscriptions(TOPIC)}
    for name in SUBSCRIPTIONS[1:]:
        if name not in known:
            admin.create_subscription(name, TOPIC, shared=True)
