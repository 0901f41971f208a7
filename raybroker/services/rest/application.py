"""The ASGI application: messages over HTTP, sent and received by users' connections to the broker.

Bounds are those of :mod:`raybroker.services.web.application`; three quarters of the requests may wait for messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from pydantic import TypeAdapter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from raybroker.model.errors import (
    BrokerError,
    IllegalStateError,
    InvalidDestinationError,
    MessageFormatError,
    ResourceAllocationError,
)
from raybroker.model.naming.names import check_destination_name
from raybroker.services.amqp.connection import WEB_PATH
from raybroker.services.gateways.client_server import ClientServer
from raybroker.services.rest import models
from raybroker.services.rest.long_poll import LongPoll
from raybroker.services.rest.openapi import OPERATIONS, about
from raybroker.services.rest.relay import Arrive, Relay
from raybroker.services.rest.user_connection import UserConnection
from raybroker.services.web.application import (
    PLAIN_HEADERS,
    RUNNING,
    Terms,
    WebApplication,
    answered,
    answered_with,
    has_body,
    not_understood,
)
from raybroker.services.web.bodies import JSON
from raybroker.services.web.json_text import written
from raybroker.services.web.problems import RefusedError
from raybroker.services.web.users import WebUsers

PIECE_BYTES: Final = 256 << 10
"""Of an answer, given to the transport at once."""
NATIVE: Final = "/native"
"""Where the native protocol goes over WebSocket."""
AMQP: Final = "amqp"
"""The subprotocol of AMQP over WebSocket, as its standard has it."""
AMQP_PATHS: Final = (WEB_PATH, "/")
"""Where it goes: clients that are given no path ask for the root."""


class Application(WebApplication[UserConnection]):
    """``arrive``: where the native protocol goes that comes over WebSocket and by long poll, None: nowhere; ``amqp``:
    serves AMQP that comes over WebSocket."""

    def __init__(
        self,
        users: WebUsers[UserConnection],
        terms: Terms,
        state: Callable[[], str] = lambda: RUNNING,
        arrive: Arrive | None = None,
        amqp: ClientServer | None = None,
    ) -> None:
        super().__init__(users, terms, about(terms.version, users.offer), OPERATIONS, state)
        self._receives = 0
        self._relay = Relay(arrive, terms.web_sockets_max) if arrive is not None else None
        self._amqp = amqp
        self._amqp_relay: Relay | None = None
        if amqp is not None:
            self._amqp_relay = Relay(
                lambda taken, peer, origin: amqp.take_client(taken, peer), terms.web_sockets_max, subprotocol=AMQP
            )
        self._polls = LongPoll(arrive, self.bodies.read, pull_s=terms.pull_s) if arrive is not None else None

    async def close(self) -> None:
        """End what users and clients of the native protocol have open."""
        if self._polls is not None:
            await self._polls.close()
        if self._amqp is not None:
            await self._amqp.close()
        await super().close()

    @property
    def load(self) -> dict[str, int]:
        """What is bounded, and how much of it there is now."""
        return {"requests": self.requests, "receives": self._receives, "bodies_bytes": self.bodies.held}

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        relay = self._relay_for(scope) if scope["type"] == "websocket" else None
        if relay is not None:
            client = WebSocket(scope, receive, send)
            try:  # A browser would show a certificate that stands for its user.
                self._terms.origins.require("CONNECT", client.headers)
            except RefusedError:
                await client.close()
                return
            await relay.serve(client)
        else:
            await super().app(scope, receive, send)

    def _relay_for(self, scope: Scope) -> Relay | None:
        if scope["path"] == NATIVE:
            return self._relay
        asked = AMQP in scope["subprotocols"] and scope["path"] in AMQP_PATHS
        return self._amqp_relay if asked else None

    async def elsewhere(self, request: Request) -> Response | None:
        """The native protocol by long poll."""
        step = self._polls.steps.get(request.scope["path"]) if self._polls is not None else None
        if step is None:
            return None
        return await step(request) if request.method == "POST" else not_understood(request, "POST")

    def check_path(self, given: Mapping[str, str]) -> None:
        if "name" in given:
            _check_name(given["name"])

    # ---- operations ------------------------------------------------------------------------------------------------

    async def _send_to_queue(self, request: Request, user: UserConnection) -> Response:
        return await self._send(request, user, "queue")

    async def _send_to_topic(self, request: Request, user: UserConnection) -> Response:
        return await self._send(request, user, "topic")

    async def _send(self, request: Request, user: UserConnection, kind: str) -> Response:
        destination = f"{kind}:{request.path_params['name']}"
        async with self.bodies.json(request) as data:
            found = models.parsed(models.SEND, data)
            if isinstance(found, list):
                ids = await user.send_all(destination, found)
            else:
                ids = [await user.send(destination, found)]
        return answered({"ids": ids}, 201)

    async def _receive(self, request: Request, user: UserConnection) -> Response:
        query, queue = await self._options(request), request.path_params["name"]
        most = self._terms.receives_max
        if self._receives >= most:
            raise ResourceAllocationError(f"{most} requests wait for messages; try again, or wait shorter")
        lease_ms = query.get("lease_ms", models.LEASE_MS)
        work = user.receive(queue, query.get("max", 1), query.get("wait_ms", 0), lease_ms)
        self._receives += 1
        try:
            held, taken = await unless_gone(request, work)
        finally:
            self._receives -= 1
        try:
            return RestAnswer({"messages": held, "lease_ms": lease_ms}, partial(user.answers.give_back, user, taken))
        except BrokerError:
            user.answers.give_back(user, taken)
            await user.give_up(queue, held)
            raise

    async def _options(self, request: Request) -> dict[str, Any]:
        """Return the options of the query and of the body; raises MessageFormatError for one that is in both."""
        query: dict[str, Any] = request.state.query
        if not has_body(request) and "content-type" not in request.headers:
            return query
        async with self.bodies.json(request) as data:
            given = models.parsed(models.RECEIVE, data) if data.strip() else {}
        if twice := sorted(query.keys() & given.keys()):
            raise MessageFormatError(f"{twice[0]} is in the query and in the body of the request; say it once")
        return {**query, **given}

    async def _acknowledge(self, request: Request, user: UserConnection) -> Response:
        return await self._settle(request, user, models.ACKNOWLEDGE, "acknowledged")

    async def _release(self, request: Request, user: UserConnection) -> Response:
        return await self._settle(request, user, models.RELEASE, "released")

    async def _settle(
        self, request: Request, user: UserConnection, adapter: TypeAdapter[Any], outcome: str
    ) -> Response:
        queue = request.path_params["name"]
        async with self.bodies.json(request) as data:
            found = models.parsed(adapter, data)
            results = await user.settle_receipts(queue, found["receipts"], outcome, found.get("delay_ms"))
        missed = [row for row in results if row["outcome"] != outcome]
        if not missed:
            return answered({"results": results})
        told = IllegalStateError(
            f"{len(missed)} of {len(results)} messages were not {outcome}; the first of them: {missed[0]['detail']}"
        )
        return answered_with(told, {"results": results})

    async def _browse(self, request: Request, user: UserConnection) -> Response:
        query = request.state.query
        queue = request.path_params["name"]
        found, more, taken = await user.browse(queue, query.get("max", 100), query.get("selector"))
        try:
            return RestAnswer({"messages": found, "more": more}, partial(user.answers.give_back, user, taken))
        except BrokerError:
            user.answers.give_back(user, taken)
            raise


class RestAnswer(Response):
    """An answer of JSON. ``sent`` is called when the client has it, or has gone."""

    def __init__(self, value: Any, sent: Callable[[], object]) -> None:
        super().__init__(written(value), 200, PLAIN_HEADERS, JSON)
        self._sent = sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer in pieces: with the next one it is waited until the client has taken those before."""
        body = memoryview(self.body)
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for start in range(0, len(body), PIECE_BYTES):
                piece = bytes(body[start : start + PIECE_BYTES])
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._sent()


async def unless_gone(request: Request, work: Any) -> Any:
    """The result of some work, which is ended when whoever asked has gone."""
    task = asyncio.get_running_loop().create_task(work)
    gone = asyncio.get_running_loop().create_task(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError, BrokerError):
                await task


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue


def _check_name(name: str) -> None:
    try:
        check_destination_name(name, allow_reserved=True)
    except InvalidDestinationError as error:
        raise MessageFormatError(str(error)) from None
