"""Sessions of an AMQP client: links are attached and detached in their order, and everything else goes to them at once.

A receiver's link name is the name of its subscription, up to a ``|``; what follows is how Qpid JMS tells links of
shared subscriptions from each other (``name|2``, ``name|global``, ``name|volatile1``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple, cast

from raybroker.client.consumer.subscriptions import make_temporary, unsubscribe
from raybroker.client.destinations import Destination
from raybroker.client.producer.members.unnamed import AnyProducer
from raybroker.client.session import opening
from raybroker.model.errors import BrokerError, NotSupportedError, ResourceAllocationError
from raybroker.services.amqp.addresses import capability_of, destination_at, kind_in, kind_of
from raybroker.services.amqp.client import AmqpClient
from raybroker.services.amqp.conditions import LOG, told
from raybroker.services.amqp.coordinator import CoordinatorLink
from raybroker.services.amqp.incoming import IncomingLink
from raybroker.services.amqp.limits import SESSION_WORK_MAX
from raybroker.services.amqp.outgoing import AmqpBrowser, OutgoingLink
from raybroker.wire.amqp.conditions import INVALID_FIELD, AmqpViolation
from raybroker.wire.amqp.events import LinkAttached, LinkDetached
from raybroker.wire.amqp.links import LinkEndpoint, ReceivingLink, SendingLink
from raybroker.wire.amqp.performatives import (
    AmqpError,
    AmqpModified,
    AmqpSource,
    AmqpTarget,
    Coordinator,
)
from raybroker.wire.amqp.sessions import SessionEndpoint
from raybroker.wire.amqp.types import Described, Symbol

SELECTOR: Final = (0x468C00000004, "apache.org:selector-filter:string")
NO_LOCAL: Final = (0x468C00000003, "apache.org:no-local-filter:list")
"""Descriptors of the filters that are obeyed."""
DELETE_ON_CLOSE: Final = (0x2B, "amqp:delete-on-close:list")
OUTCOMES: Final = (
    "amqp:accepted:list",
    "amqp:rejected:list",
    "amqp:released:list",
    "amqp:modified:list",
)
DELAYED: Final = "DELAYED_DELIVERY"
NEVER: Final = "never"
Work = Callable[[], Awaitable[None]]


class WantedSource(NamedTuple):
    """What the receiver of a link asks for. ``filters``: those that are obeyed, as they are echoed."""

    selector: str | None
    no_local: bool
    filters: dict[Any, Any]
    browses: bool
    durable: bool
    shared: bool
    everyones: bool
    name: str


def wanted_by(link_name: str, source: AmqpSource, kind: str) -> WantedSource:
    """Raises AmqpViolation for a filter that makes no sense."""
    selector, no_local, filters = None, False, {}
    for key, found in (source.filter or {}).items():
        descriptor, value = (found.descriptor, found.value) if isinstance(found, Described) else (None, found)
        if descriptor in SELECTOR or (descriptor is None and key == "jms-selector"):
            if not isinstance(value, str):
                raise AmqpViolation("a selector is no string", INVALID_FIELD)
            selector, filters[key] = value, found
        elif descriptor in NO_LOCAL and kind == "topic":
            no_local, filters[key] = True, found
    capabilities = source.capabilities or ()
    topic = kind == "topic"
    shared, everyones = topic and "shared" in capabilities, "global" in capabilities
    durable = topic and (source.durable > 0 or source.expiry_policy == NEVER)
    browses = not topic and source.distribution_mode == "copy"
    return WantedSource(selector, no_local, filters, browses, durable, shared, everyones, link_name.partition("|")[0])


class AmqpSession:
    """``endpoint``: the engine's side of it."""

    def __init__(self, client: AmqpClient, endpoint: SessionEndpoint) -> None:
        self.endpoint = endpoint
        self._client = client
        self._links: set[Any] = set()
        """What its links do, of those that are attached."""
        self._work: deque[Work] = deque()
        self._working: asyncio.Task[Any] | None = None

    # ---- one after another -------------------------------------------------------------------------------------------

    def run(self, work: Work) -> None:
        """Do some work of the session after what has come before it."""
        if len(self._work) >= SESSION_WORK_MAX:
            self.endpoint.send_end(told(ResourceAllocationError(f"{SESSION_WORK_MAX} links of the session wait")))
            return
        self._work.append(work)
        if self._working is None:
            self._working = self._client.loops.once("links of a session", self._run())

    async def _run(self) -> None:
        try:
            while self._work:
                await self._work.popleft()()
                self._client.output.flush()
        finally:
            self._working = None

    def attached(self, event: LinkAttached) -> None:
        self.run(partial(self._attach, event))

    def detached(self, event: LinkDetached) -> None:
        self.run(partial(self._detach, event))

    # ---- attach ------------------------------------------------------------------------------------------------------

    async def _attach(self, event: LinkAttached) -> None:
        link = event.link
        try:
            if isinstance(link, ReceivingLink):
                await self._attach_incoming(link, event.attach.target)
            elif isinstance(link, SendingLink):
                await self._attach_outgoing(link, event.attach.source)
        except Exception as error:  # noqa: BLE001 - told to the client, and logged when it is no fault of its own
            LOG.info("[B1227] a link of the AMQP client %s is refused: %s", self._client.output.peer, error)
            found = told(error, "an attach")
            self._client.counts.count_rejected(found.condition)
            link.refuse(found)

    def _keep(self, link: LinkEndpoint, context: Any) -> None:
        link.context = context
        self._links.add(context)

    async def _attach_incoming(self, link: ReceivingLink, target: Any) -> None:
        client = self._client
        peer = link.peer
        assert peer is not None
        if isinstance(target, Coordinator):
            made = CoordinatorLink(client, link, self.run)
            self._keep(link, made)
            link.send_attach(peer.source, Coordinator((Symbol("amqp:local-transactions"),)))
            made.activate()
            return
        if target is None:
            raise AmqpViolation("a link has neither a target nor a coordinator", INVALID_FIELD)
        offered = (Symbol(DELAYED),) if DELAYED in (peer.desired_capabilities or ()) else None
        destination: Destination | None = None
        producer: AnyProducer | None = None
        answer: Any = target
        if target.dynamic:
            destination, answer = await self._temporary(target)
        elif target.address:
            destination = destination_at(target.address, kind_in(target.capabilities))
        if destination is not None:
            producer = cast(AnyProducer, await opening.producer(client.plain, destination, {}))
        else:
            await client.producer()
        incoming = IncomingLink(client, link, destination, producer, temporary=target.dynamic)
        self._keep(link, incoming)
        link.send_attach(peer.source, answer, offered_capabilities=offered)
        incoming.activate()

    async def _temporary(self, asked: AmqpSource | AmqpTarget) -> tuple[Destination, Any]:
        """A temporary destination, and the terminus that tells of it."""
        properties = asked.dynamic_node_properties or {}
        policy = properties.get("lifetime-policy")
        if policy is not None and not (isinstance(policy, Described) and policy.descriptor in DELETE_ON_CLOSE):
            raise NotSupportedError("a dynamic node lives as long as its link: its lifetime-policy is delete-on-close")
        kind = kind_of(kind_in(asked.capabilities) or "queue")
        made = kind(await make_temporary(self._client.plain, kind))
        capabilities = tuple(asked.capabilities or (Symbol(capability_of(made)),))
        return made, asked._replace(address=made.name, capabilities=capabilities)

    async def _attach_outgoing(self, link: SendingLink, source: AmqpSource | None) -> None:
        peer = link.peer
        assert peer is not None
        if source is None:
            await self._unsubscribe(link)
            return
        answer = source
        if source.dynamic:
            destination, answer = await self._temporary(source)
        else:
            destination = destination_at(source.address, kind_in(source.capabilities))
        wanted = wanted_by(link.name, source, destination.kind)
        answer = answer._replace(
            filter=wanted.filters or None,
            outcomes=tuple(map(Symbol, OUTCOMES)),
            default_outcome=source.default_outcome or AmqpModified(delivery_failed=True),
            capabilities=answer.capabilities or (Symbol(capability_of(destination)),),
        )
        outgoing = await self._consume(link, destination, wanted, temporary=source.dynamic)
        self._keep(link, outgoing)
        link.send_attach(answer, peer.target)
        outgoing.activate(partial(self._consumer_ended, link))

    async def _consume(
        self, link: SendingLink, destination: Destination, wanted: WantedSource, *, temporary: bool
    ) -> OutgoingLink:
        client = self._client
        session = client.session("client")
        if wanted.browses:
            browser = opening.browser(session, destination, wanted.selector, None)
            await browser.open()
            return OutgoingLink(client, link, destination, AmqpBrowser(browser), session.close_the_rest)
        named = wanted.durable or wanted.shared
        share = client.room.take_share(client.share_max)
        try:
            consumer = await opening.consumer(
                session,
                destination,
                {"selector": wanted.selector, "prefetch": 0, "no_local": wanted.no_local},
                name=wanted.name if named else None,
                durable=wanted.durable,
                shared=wanted.shared,
                everyones=wanted.everyones,
                buffer_bytes=share,
            )
        except BaseException:
            client.room.give_back(share)
            raise
        return OutgoingLink(
            client, link, destination, consumer, session.close_the_rest, share=share, temporary=temporary
        )

    def _consumer_ended(self, link: LinkEndpoint, error: BaseException) -> None:
        """A consumer has ended by itself, and its link with it."""
        link.send_detach(told(error, "a consumer"))
        self._client.output.flush_soon()

    async def _unsubscribe(self, link: SendingLink) -> None:
        """The receiver of a link asks for the subscription of its name, as JMS clients do that unsubscribe: they close
        it then."""
        name, _, suffix = link.name.partition("|")
        everyones = "global" in suffix
        await unsubscribe(self._client.plain, name, everyones=everyones)
        link.send_attach(AmqpSource(name, durable=2, expiry_policy=NEVER), link.peer.target if link.peer else None)

    # ---- detach ------------------------------------------------------------------------------------------------------

    async def _detach(self, event: LinkDetached) -> None:
        context, link = event.link.context, event.link
        error: AmqpError | None = None
        if context is not None:
            link.context = None
            self._links.discard(context)
            try:
                await context.end_link(clean=True)
            except BrokerError as fault:
                error = told(fault)
        if event.by_peer:
            link.send_detach(error, closed=event.closed)

    async def ended(self, *, clean: bool) -> None:
        """The session has ended, with all its links."""
        working = self._working
        self._work.clear()
        if working is not None and working is not asyncio.current_task():
            working.cancel()
            await asyncio.wait([working])
        links, self._links = self._links, set()
        for context in links:
            try:
                await context.end_link(clean=clean)
            except BrokerError as error:
                LOG.info("[B1228] a link of the AMQP client %s: %s", self._client.output.peer, error)
