"""The ASGI application: a request is one verb, carried out by the connection of who asks."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from raybroker.admin.checks import failing, worst
from raybroker.admin.verb import Verb
from raybroker.admin.verbs import VERBS
from raybroker.model.errors import BrokerError, InvalidDestinationError, InvalidSelectorError, MessageFormatError
from raybroker.model.listing import Listing
from raybroker.services.administration.resources import RESOURCES, Resource
from raybroker.services.administration.shapes import GRADED, Shape
from raybroker.services.administration.user import Administrator
from raybroker.services.console.console import Console
from raybroker.services.console.figures import Figures
from raybroker.services.console.history import HistorySampling
from raybroker.services.console.sessions import ConsoleSessions
from raybroker.services.web.application import RUNNING, Handler, Terms, WebApplication, answered
from raybroker.services.web.credentials import Offer
from raybroker.services.web.json_text import checked, loaded
from raybroker.services.web.operations import DESCRIPTION, HEALTH, NO_QUERY, About, Operation
from raybroker.services.web.problems import RefusedError
from raybroker.services.web.users import WebUsers
from raybroker.system import entropy
from raybroker.system.clock import SystemClock

READING: Final = ("GET", "DELETE")
"""Methods whose arguments come in the query."""
_SEGMENT: Final = re.compile(r"\{(\w+)\}")
_MARKUP: Final = re.compile(r":(?:meth|class|mod):`[~.]*([^`]+)`|``([^`]+)``")


class Work:
    """One resource: its verb, and the shape of what that takes and answers."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.verb = VERBS[resource.verb]
        self.creates = resource.verb.startswith(("create_", "import_"))
        in_path = _SEGMENT.findall(resource.path)
        self.name = _name_of(resource)
        self.shape = Shape(self.verb, self.name, in_path, query=resource.method in READING)

    @property
    def operation(self) -> Operation:
        """Return the operation for the table of routes, and for the description."""
        resource, shape = self.resource, self.shape
        summary, text = _described(self.verb)
        status = 204 if shape.answer is None else 201 if resource.verb.startswith("create_") else 200
        return Operation(
            resource.method,
            resource.path,
            self.name,
            summary,
            GRADED if resource.graded else shape.answer,
            status,
            body=None if shape.query else shape.others,
            body_needed=shape.needed,
            query=shape.others if shape.query else NO_QUERY,
            segments=shape.segments,
            text=text,
            tag=resource.path.split("/")[1],
            graded=resource.graded,
        )


def _name_of(resource: Resource) -> str:
    """Verb, and whether it is of one or of all: two resources have one verb."""
    others = [other for other in RESOURCES if other.verb == resource.verb]
    alone = len(others) == 1 or "{" in resource.path
    return resource.verb if alone else f"{resource.verb}_of_all"


def _described(verb: Verb[..., Any]) -> tuple[str, str]:
    """(first sentence, the rest) of a verb's description."""
    text = _MARKUP.sub(lambda found: f"`{found[1] or found[2]}`", inspect.getdoc(verb.declared) or verb.name)
    first, _, rest = text.partition("\n\n")
    return " ".join(first.split()), rest.strip()


WORKS: Final = tuple(Work(resource) for resource in RESOURCES)
OPERATIONS: Final = (*(work.operation for work in WORKS), HEALTH, DESCRIPTION)
_BY_NAME: Final = {operation.name: work for operation, work in zip(OPERATIONS, WORKS, strict=False)}


def about(version: str, offer: Offer) -> About:
    """What the description says of the service."""
    return About(
        "raybroker administration",
        version,
        "Administration of a broker and its cluster: each operation is a verb of conn.admin() and of the command line."
        " Users are those of the broker who may connect to its ADMIN services, by HTTP Basic or a token over TLS.",
        offer.schemes,
    )


class Administration(WebApplication[Administrator]):
    """See the module. ``samples``: what the console shows of the last hour, None: there is no console;
    ``session_idle_s``: after which a session of it ends."""

    def __init__(
        self,
        users: WebUsers[Administrator],
        terms: Terms,
        state: Callable[[], str] = lambda: RUNNING,
        samples: HistorySampling | None = None,
        session_idle_s: float = 0,
    ) -> None:
        super().__init__(users, terms, about(terms.version, users.offer), OPERATIONS, state)
        clock = SystemClock()
        self._samples = samples

        def now_s() -> float:
            return clock.monotonic_ns() / 1e9

        self._console = (
            Console(
                self,
                ConsoleSessions(session_idle_s, now_s, entropy.token),
                Figures(now_s, clock.now_ms, samples.history.latest),
                samples,
                terms.broker,
                terms.version,
            )
            if samples is not None
            else None
        )

    async def close(self) -> None:
        if self._samples is not None:
            self._samples.close()
        await super().close()

    def origins_told(self, request: Request) -> Mapping[str, str]:
        return {} if Console.has(request.scope["raw_path"]) else super().origins_told(request)

    async def elsewhere(self, request: Request) -> Response | None:
        if self._console is None or not Console.has(request.scope["raw_path"]):
            return None
        return await self._console.respond(request)

    def handler(self, operation: Operation) -> Handler:
        work = _BY_NAME.get(operation.name)
        if work is None:
            return super().handler(operation)

        async def handle(request: Request, user: Administrator) -> Response:
            return await self._carry_out(work, operation, request, user)

        return handle

    async def _carry_out(self, work: Work, operation: Operation, request: Request, user: Administrator) -> Response:
        given = request.state.query if work.shape.query else await self._body(work.shape, request)
        try:
            args = work.shape.arguments(request.path_params, given)
        except BrokerError as error:
            raise RefusedError(str(error), 400) from None
        try:
            answer = await user.carry_out(work.verb.name, args)
        except InvalidSelectorError:
            raise
        except InvalidDestinationError as error:
            if work.creates:  # It has a bad name, or is there already: what is asked for does not lack.
                raise RefusedError(str(error), 409) from None
            raise
        if work.resource.graded:
            rows = [*answer, *_missing(answer)]
            return answered({"grade": worst(rows), "checks": rows}, 503 if failing(rows) else 200)
        if work.shape.answer is None:
            return Response(status_code=operation.status)
        return answered(work.shape.told(answer), operation.status)

    async def _body(self, shape: Shape, request: Request) -> Any:
        """The JSON object of the body; a verb that needs no argument may have none."""
        if "content-type" not in request.headers and not shape.needed:
            async with self.bodies.read(request, 0):
                return checked(shape.others, {}, "the body of the request")
        async with self.bodies.json(request) as data:
            value = loaded(data) if data.strip() or shape.needed else {}
            if not isinstance(value, dict):
                raise MessageFormatError("the body of the request: it is a JSON object with the arguments by name")
            return checked(shape.others, value, "the body of the request")


def _missing(answer: Any) -> list[dict[str, Any]]:
    """A check that cannot be made is one of unknown grade."""
    missing = answer.missing if isinstance(answer, Listing) else {}
    return [
        {"check": "answers", "of": name, "grade": "critical", "text": f"it has not answered: {why}"}
        for name, why in sorted(missing.items())
    ]
