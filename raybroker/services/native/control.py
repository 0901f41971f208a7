"""The control connection of a client that is not in the Ray cluster: it logs in, and asks the broker for the rest.

    request      arguments                    answer
    login        mechanism, first, client     challenge, and then
    proof        final                        signature, broker, settings, doors; or, with an own certificate over TLS,
    certify      client                       the same
    mechanisms                                those that the service offers; instead of the login, or after its refusal
    ask          method, args                 what the broker answers, if the user may ask that
    piece        number                       the next piece of a long answer (wire/native/long_answers.py)

Before a client has logged in, a frame has at most FRAME_BYTES_UNKNOWN bytes, only the requests of a login are taken, at
most REQUESTS_UNKNOWN_MAX of them, and the whole takes at most the handshake's time for the first and
imq.authentication.client.response.timeout for the second. How long checking a proof may take is the mechanism's bound.

One connection is good for one login:

    NEW            begun       CHALLENGED
    CHALLENGED     proved      CHECKED
    NEW            certified   CHECKED
    CHECKED        admitted    LOGGED_IN
    NEW, CHECKED   denied      DENIED
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, Protocol

from raybroker.model.errors import BrokerError, NotSupportedError, ProtocolError, RequestTimeoutError, SecurityError
from raybroker.model.machine import Machine
from raybroker.model.settings.setting_listeners import UNREAD_S
from raybroker.security.access_rules import User
from raybroker.security.mechanism import DIGEST, Exchange, Identity
from raybroker.services.listening.arrivals import ITSELF, Origin
from raybroker.transport.link import Link
from raybroker.transport.unread import UnreadWatch
from raybroker.wire.native import frames as wire
from raybroker.wire.native.connection import TOKEN_BYTES, Native
from raybroker.wire.native.long_answers import PIECE, LongAnswers

LOG: Final = logging.getLogger("raybroker.services")
FRAME_BYTES_UNKNOWN: Final = 16_384
"""Enough for a token."""
REQUESTS_UNKNOWN_MAX: Final = 16
"""Requests and pings before the login is over: answers to more of them would be kept for who does not read."""
FRAME_BYTES_KNOWN: Final = 1 << 20
CLOSE_TIMEOUT_S: Final = 5.0
"""How long a client may take to read why it is closed."""
LATE_S: Final = 0.5
"""A loop that is later than this was busy, and has not read yet what came meanwhile."""
READ_S: Final = 0.5
"""Time to read it."""
ASKED_MAX: Final = 256
"""Requests of one client that are being answered."""
OPEN_TOKEN: Final = bytes(TOKEN_BYTES)
"""What the preface of a control connection has: it proves nothing."""


class LoginState(StrEnum):
    NEW = "NEW"
    CHALLENGED = "CHALLENGED"
    CHECKED = "CHECKED"
    LOGGED_IN = "LOGGED_IN"
    DENIED = "DENIED"


class LoginEvent(StrEnum):
    BEGIN = "begun"
    PROVE = "proved"
    CERTIFY = "certified"
    ADMIT = "admitted"
    DENY = "denied"


_S, _E = LoginState, LoginEvent
LOGIN: Final = Machine(
    "the login",
    [
        ((_S.NEW,), _E.BEGIN, _S.CHALLENGED),
        ((_S.CHALLENGED,), _E.PROVE, _S.CHECKED),
        ((_S.NEW,), _E.CERTIFY, _S.CHECKED),
        ((_S.CHECKED,), _E.ADMIT, _S.LOGGED_IN),
        ((_S.NEW, _S.CHECKED), _E.DENY, _S.DENIED),
    ],
    ProtocolError,
)


class LoginDoor(Protocol):
    """The service that a control connection belongs to."""

    def login(self, control: Control, mechanism: str) -> Exchange:
        """Begin the login of a client who has not logged in yet; raises NotSupportedError for a mechanism that is not
        offered, and others when nobody may log in now."""
        ...

    def certified(self, control: Control, certificate: bytes) -> User:
        """The user that a client's verified certificate stands for; raises SecurityError."""
        ...

    def mechanisms(self) -> list[str]: ...

    async def admitted(self, control: Control, identity: Identity) -> dict[str, Any]:
        """It has: what the client is told. Raises SecurityError when the user may not connect to the service."""
        ...

    def denied(self, control: Control, login: Exchange | None, why: str) -> None:
        """The login has failed; ``why`` is what the client is told."""
        ...

    async def answer_client(self, control: Control, method: str, args: list[Any]) -> Any: ...

    def client_refused(self, address: str, why: str) -> None: ...

    def gone(self, control: Control) -> None: ...


class Control:
    """One client. ``id``: of its connection; ``peer``: its address; ``origin``: how it comes."""

    def __init__(
        self,
        door: LoginDoor,
        id: str,
        peer: str,
        *,
        first_s: float,
        proof_s: float,
        origin: Origin = ITSELF,
        unread_s: float = UNREAD_S,
    ) -> None:
        self.id = id
        self.user: User | None = None
        self.client: dict[str, Any] = {}
        """What the client says of itself: client_id, platform; of one with a client id also ``instance``, the same for
        all of its control connections, and whether others may have that id (``unrestricted``)."""
        self.peer = peer
        self._door = door
        self.origin = origin
        self._certificate = origin.certificate
        """The client's own, which TLS has verified."""
        self._proof_s = proof_s
        self._first_s = first_s
        self._login: Exchange | None = None
        self._state = LoginState.NEW
        self.why = ""
        """Why it has ended, once it has."""
        self._expiry: asyncio.TimerHandle | None = None
        self._requests = 0
        self._long_answers = LongAnswers()
        self.mechanism = ""
        self.proved: object = None
        """What the file of users has of its user, by which it has logged in; None: by something else."""
        self._deadline: asyncio.TimerHandle | None = None
        self._asked: set[asyncio.Task[None]] = set()
        native = Native(token=OPEN_TOKEN, frame_bytes_max=FRAME_BYTES_UNKNOWN)
        native.control_bytes_max = FRAME_BYTES_UNKNOWN
        self._native = native
        self.link = Link(
            native, on_frames=self._frames, on_lost=self._lost, on_made=self._made, on_writable=self._read_on
        )
        self._watch = UnreadWatch(unread_s, self.link, self._give_up)

    def _made(self, link: Link) -> None:
        self._certificate = self.origin.certificate or link.peer_certificate
        self._watch.start()
        self._expect(self._first_s)

    def _read_on(self) -> None:
        self.link.resume_reading()

    def _give_up(self, why: str) -> None:
        """It does not read."""
        self.why = self.why or why
        self.link.abort()

    def _too_slow(self, seconds: float, due_s: float) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - due_s > LATE_S:  # The loop was busy: what the client has sent in time is not read yet.
            self._deadline = loop.call_later(READ_S, self._too_slow, seconds, loop.time() + READ_S)
            return
        self._door.client_refused(self.peer, "it has not logged in in time")
        if self._requests:  # A stranger who has asked for nothing learns nothing.
            self.close(RequestTimeoutError.code, f"a step of the login took longer than {seconds:g} s: it was too slow")
        else:
            self.link.abort()

    @property
    def silent(self) -> bool:
        """It has not logged in, and nothing is done for it: the next step is its own."""
        return self._state in (LoginState.NEW, LoginState.CHALLENGED)

    def give_up(self, why: str) -> None:
        """End it at once."""
        self._door.client_refused(self.peer, why)
        self.link.abort()

    def _frames(self, frames: list[wire.Frame]) -> None:
        for frame in frames:
            if self.user is None:
                self._requests += 1
                if self._requests > REQUESTS_UNKNOWN_MAX:
                    raise ProtocolError(f"more than {REQUESTS_UNKNOWN_MAX} requests before the login is over")
            if isinstance(frame, wire.PingFrame):
                self._write(wire.pong(frame.nonce))
            elif isinstance(frame, wire.PongFrame):
                continue
            elif not isinstance(frame, wire.CallFrame):
                raise ProtocolError(f"a control connection takes no {type(frame).__name__}")
            elif len(self._asked) >= ASKED_MAX:
                self._write(wire.failed(frame.request, ProtocolError.code, f"{ASKED_MAX} requests are under way"))
            else:
                task = asyncio.get_running_loop().create_task(self._answer(frame))
                self._asked.add(task)
                task.add_done_callback(self._asked.discard)

    def _write(self, answer: Any) -> None:
        """Who does not read its answers is not read from either."""
        self.link.write(answer)
        if self.link.congested:
            self.link.pause_reading()

    async def _answer(self, frame: wire.CallFrame) -> None:
        try:
            answer = self._long_answers.reply(frame.request, await self._handle(frame.op, frame.args))
        except BrokerError as error:
            answer = wire.failed(frame.request, error.code, str(error))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            text = f"request {frame.op!r:.40} is malformed: {error!r:.200}"
            answer = wire.failed(frame.request, ProtocolError.code, text)
        except Exception as error:  # a client that is told nothing waits for ever
            LOG.exception("a request of %s could not be answered", self.peer)
            answer = wire.failed(frame.request, BrokerError.code, f"the broker failed: {error!r:.200}")
        self._write(answer)
        if self._state is LoginState.DENIED:
            self.link.close(SecurityError("the login failed"))
            self._expect(CLOSE_TIMEOUT_S)

    async def _handle(self, op: str, args: dict[str, Any]) -> Any:
        if self.user is not None:
            if op == PIECE:
                return self._long_answers.piece(int(args["number"]))
            if op != "ask":
                raise ProtocolError(f"unknown request {op!r:.40}; the user has logged in")
            return await self._door.answer_client(self, str(args["method"]), list(args["args"]))
        match op:
            case "mechanisms":
                return self._door.mechanisms()
            case "login":
                return self._begin_login(args)
            case "proof":
                return await self._prove(args)
            case "certify":
                return await self._certify(args)
        raise SecurityError("log in first")

    def _begin_login(self, args: dict[str, Any]) -> str:
        LOGIN.require(self._state, LoginEvent.BEGIN)
        self._introduce(args)
        try:
            self.mechanism = str(args.get("mechanism", DIGEST))
            login = self._login = self._door.login(self, self.mechanism)
            challenge = login.make_challenge(str(args["first"]))
        except NotSupportedError:
            raise
        except BrokerError as error:
            self._deny(str(error))
            raise
        self._happens(LoginEvent.BEGIN)
        self._expect(self._proof_s)
        return challenge

    async def _prove(self, args: dict[str, Any]) -> dict[str, Any]:
        self._happens(LoginEvent.PROVE)
        login = self._login
        assert login is not None
        self._expect(0)
        try:
            identity, signature = await login.finish(str(args["final"]))
            told = await self._door.admitted(self, identity)
        except BrokerError as error:
            self._deny(str(error))
            raise
        self._let_in(identity.user)
        return {"signature": signature, **told}

    async def _certify(self, args: dict[str, Any]) -> dict[str, Any]:
        self._happens(LoginEvent.CERTIFY)
        self._introduce(args)
        try:
            if self._certificate is None:
                raise SecurityError("the client has shown no certificate; connect with one, or with a password")
            user = self._door.certified(self, self._certificate)
            told = await self._door.admitted(self, Identity(user))
        except BrokerError as error:
            self._deny(str(error))
            raise
        self._let_in(user)
        return {"signature": "", **told}

    def _introduce(self, args: dict[str, Any]) -> None:
        self.client = {key: str(value)[:200] for key, value in dict(args.get("client") or {}).items() if key in _TOLD}

    def _happens(self, event: LoginEvent) -> None:
        self._state = LOGIN.after(self._state, event)

    def _let_in(self, user: User) -> None:
        self._happens(LoginEvent.ADMIT)
        self._expect(0)
        self.user = user
        self._native.control_bytes_max = FRAME_BYTES_KNOWN

    def _deny(self, why: str) -> None:
        self._happens(LoginEvent.DENY)
        self._door.denied(self, self._login, why)

    def _expect(self, seconds: float) -> None:
        """The time for the next step; 0: there is none."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None
        if seconds:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(seconds, self._too_slow, seconds, loop.time() + seconds)

    def expire(self, seconds: float, ended: Callable[[], None]) -> None:
        """Call ``ended`` after that time, unless the client has gone."""
        self._expiry = asyncio.get_running_loop().call_later(max(seconds, 0), ended)

    def _lost(self, error: BrokerError | None) -> None:
        self._watch.stop()
        self._expect(0)
        if self._expiry is not None:
            self._expiry.cancel()
        self.why = self.why or str(error or "")
        for task in self._asked:
            task.cancel()
        if self.user is None and isinstance(error, ProtocolError | SecurityError) and self._login is None:
            self._door.client_refused(self.peer, str(error))
        self._door.gone(self)

    def close(self, code: str, text: str) -> None:
        """End it, and tell the client why; one that does not read that is cut off."""
        self.why = self.why or text
        asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_S, self.link.abort)
        self.link.write(wire.event("closing", {"code": code, "text": text}))
        self.link.close()


ELSEWHERE: Final = "elsewhere"
"""What a gateway's client says of itself that can be told where else it is taken: a service that takes no new clients
lets it in to ask that, and nothing else."""
ONLY_ELSEWHERE: Final = "only"
"""It was let in for that."""
_TOLD: Final = frozenset({"client_id", "platform", "instance", "unrestricted", ELSEWHERE})
