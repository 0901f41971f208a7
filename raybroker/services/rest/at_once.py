"""One small message a request, sent at once: without a task, a future and a turn of the event loop.

What is checked is what every request is checked for. A request that fails a check, or whose message has to wait for
more than its confirmation, is left to the ASGI application before anything has happened; it also says what is wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from raybroker.model.errors import BrokerError, SecurityError
from raybroker.services.http.http_at_once import Answering, Head, Request
from raybroker.services.rest import models
from raybroker.services.rest.user_connection import STEP_TIMEOUT_S, UserConnection, no_answer
from raybroker.services.web.application import answered_with, failed, opened_again
from raybroker.services.web.bodies import JSON, Bodies
from raybroker.services.web.credentials import Credentials
from raybroker.services.web.json_text import loaded, written
from raybroker.services.web.users import Known, Users

JSON_BYTES: Final = JSON.encode()
_ELSEWHERE: Final = frozenset({b"content-encoding", b"origin", b"sec-fetch-site"})
"""Headers of requests that are for the application: it refuses what is encoded, and pages of other sites."""
CREATED: Final = b"cache-control: no-store\r\ncontent-length: %d\r\ncontent-type: application/json\r\n"


class Web(Protocol):
    """The application. ``requests``: those that are being answered."""

    requests: int
    users: Users[UserConnection]
    bodies: Bodies

    def require_room(self) -> None: ...

    def require_open(self) -> None: ...

    def asked_by(
        self, scheme: str, client: tuple[str, int] | None, authorization: str | None
    ) -> tuple[Credentials, str]: ...


Together = Callable[[Callable[[], bool]], bool]
"""Does it, and has what is handed over to connections leave at its end, in one go."""


def alone(work: Callable[[], bool]) -> bool:
    """What is handed over leaves when it does."""
    return work()


class _Asked(NamedTuple):
    """What a head says: who asks, from which "address:port", and where the message goes. ``digest``: of his secret."""

    given: Credentials
    digest: bytes
    peer: str
    destination: str


class _Sent:
    """A message that is on its way, and who asked for it. ``until_s``: how long it may take."""

    __slots__ = ("answer", "destination", "known", "size", "until_s")

    def __init__(
        self, known: Known[UserConnection], answer: Answering, destination: str, size: int, until_s: float
    ) -> None:
        self.known = known
        self.answer = answer
        self.destination = destination
        self.size = size
        self.until_s = until_s


class SendsAtOnce:
    """``destination_at(url)``: "queue:name" or "topic:name" of what is sent there, None: it is for others;
    ``timeout_s``: how long the broker may take. Messages on their way are bounded as requests are."""

    def __init__(
        self,
        web: Web,
        destination_at: Callable[[bytes], str | None],
        together: Together = alone,
        timeout_s: float = STEP_TIMEOUT_S,
    ) -> None:
        self._web = web
        self._destination_at = destination_at
        self._together = together
        self._timeout_s = timeout_s
        self._under_way: dict[_Sent, None] = {}
        """In the order in which they came."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._under_way)

    def take(self, request: Request, answer: Answering) -> bool:
        """Send the message of a request, and answer it when it is stored. False: nothing has happened."""
        head = request.head
        asked = head.meaning
        try:
            self._web.require_room()
            if not isinstance(asked, _Asked):
                asked = self._asked(head)
                if asked is None:
                    return False
                head.meaning = asked
            self._web.require_open()
            value = loaded(request.body)
            if not isinstance(value, dict):
                return False
            message = models.message_of(value)
            known = self._web.users.enter(asked.given, asked.digest, asked.peer)
        except BrokerError:
            return False
        if known is None:
            return False
        if not self._web.bodies.take(request.body):
            self._web.users.leave(known)
            return False
        loop = asyncio.get_running_loop()
        sent = _Sent(known, answer, asked.destination, len(request.body), loop.time() + self._timeout_s)
        self._web.requests += 1
        self._under_way[sent] = None
        return self._sent(sent, message, loop)

    def _asked(self, head: Head) -> _Asked | None:
        """None: it is for others. Raises what is wrong with it."""
        headers = head.headers
        destination = self._destination_at(head.url)
        if destination is None or headers.get(b"content-type") != JSON_BYTES or not _ELSEWHERE.isdisjoint(headers):
            return None
        authorization = headers.get(b"authorization")
        given, peer = self._web.asked_by(
            head.scheme, head.peer, None if authorization is None else authorization.decode("latin-1")
        )
        return _Asked(given, self._web.users.digest_of(given), peer, destination)

    def _sent(self, sent: _Sent, message: models.MessageIn, loop: asyncio.AbstractEventLoop) -> bool:
        def told(message_id: str, error: BaseException | None) -> None:
            if self._leave(sent):
                self._answer(sent, message_id, error)

        try:
            taken = self._together(lambda: sent.known.opened.send_at_once(sent.destination, message, told))
        except Exception:  # noqa: BLE001 - the ASGI application meets it too, and says so
            taken = False
        if not taken:
            return not self._leave(sent)
        if self._timer is None and self._under_way:
            self._timer = loop.call_later(self._timeout_s, self._look)
        return True

    def _leave(self, sent: _Sent) -> bool:
        """It is over; False: it was before."""
        if sent not in self._under_way:
            return False
        del self._under_way[sent]
        self._web.requests -= 1
        self._web.bodies.give_back(sent.size)
        self._web.users.leave(sent.known)
        return True

    def _answer(self, sent: _Sent, message_id: str, error: BaseException | None) -> None:
        if error is None:
            body = written({"ids": [message_id]})
            sent.answer.send(201, CREATED % len(body), body)
            return
        if isinstance(error, SecurityError) and sent.known.opened.ended:
            error = opened_again(error)
        response = answered_with(error if isinstance(error, BrokerError) else failed(error))
        headers = b"".join(b"%b: %b\r\n" % header for header in response.raw_headers)
        sent.answer.send(response.status_code, headers, bytes(response.body))

    def _look(self) -> None:
        """Those whose time is over are told; whether their messages are stored is not known."""
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._under_way:
            sent = next(iter(self._under_way))
            left_s = sent.until_s - loop.time()
            if left_s > 0:
                self._timer = loop.call_later(left_s, self._look)
                return
            self._leave(sent)
            self._answer(sent, "", no_answer(sent.destination))

    def close(self) -> None:
        """Nobody is told any more that his time is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
