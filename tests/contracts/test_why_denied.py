"""``why-denied`` says of every user, operation and door what the door itself does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from raybroker.errors import BrokerError, ConfigError, SecurityError
from raybroker.security.user_file import UserEntry
from tests.contracts.stomp_rig import Bare
from tests.contracts.test_services import VERIFIER, Outside

pytestmark = pytest.mark.xdist_group("why_denied")  # One worker makes what they share.

RULES = """version=JMQFileAccessControlModel/100
connection.NORMAL.allow.user=*
connection.NORMAL.deny.user=stranger
connection.ADMIN.allow.group=admin
queue.*.produce.allow.user=*
queue.*.consume.allow.user=ann,root
queue.kept.consume.allow.group=user
queue.kept.consume.deny.user=bob
queue.*.browse.allow.group=admin
topic.*.produce.deny.user=bob
topic.*.produce.allow.user=*
topic.*.consume.allow.user=*
topic.news.consume.deny.group=user
topic.news.consume.allow.user=ann
queue.create.allow.user=ann
topic.create.allow.group=admin
queue.mq.sys.dmq.consume.allow.user=ann
queue.mq.sys.dmq.browse.allow.group=admin
topic.mq.metrics.broker.consume.allow.user=bob
topic.mq.metrics.destination.queue.kept.consume.deny.user=bob
"""
USERS = ("ann", "bob", "carl", "root", "stranger", "gone")


class Asked(NamedTuple):
    operation: str
    type: str
    name: str | None


ASKED = (
    Asked("produce", "queue", "kept"),
    Asked("consume", "queue", "kept"),
    Asked("browse", "queue", "kept"),
    Asked("consume", "queue", "other"),
    Asked("produce", "topic", "news"),
    Asked("consume", "topic", "news"),
    Asked("consume", "topic", "open"),
    Asked("produce", "queue", "fresh"),
    Asked("consume", "queue", "fresh"),
    Asked("consume", "topic", "fresh"),
    Asked("consume", "queue", "mq.sys.dmq"),
    Asked("browse", "queue", "mq.sys.dmq"),
    Asked("consume", "topic", "mq.metrics.broker"),
    Asked("consume", "topic", "mq.metrics.jvm"),
    Asked("consume", "topic", "mq.metrics.destination.queue.kept"),
    Asked("create", "queue", None),
    Asked("create", "topic", None),
    Asked("connect", "queue", None),
)


class World(Outside):
    def __init__(self, folder: Path, opened: ExitStack) -> None:
        super().__init__(
            folder,
            opened,
            **{
                "imq.service.activelist": "jms,admin,httpjms,stomp",
                "imq.httpjms.accesscontrol.enabled": "false",
                "imq.metrics.topic.enabled": True,
            },
        )
        self.users.add("carl", UserEntry(VERIFIER, "user"))
        self.users.add("gone", UserEntry(VERIFIER, "admin", active=False))
        for kind, name in (("queue", "kept"), ("queue", "other"), ("topic", "news"), ("topic", "open")):
            self.admin.create_destination(kind, name)
        self.rules.write_text(RULES)
        self._made = 0

    def fresh(self, asked: Asked) -> Asked:
        """With a name that nobody has used, where it is to be created."""
        if asked.operation == "create":
            return asked._replace(operation="produce" if asked.type == "queue" else "consume", name=self._new())
        return asked._replace(name=self._new()) if asked.name == "fresh" else asked

    def _new(self) -> str:
        self._made += 1
        return f"made.{self._made}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as opened:
        yield World(Path(tmp_path_factory.mktemp("why")), opened)


def by_handles(world: World, user: str, asked: Asked) -> bool:
    asked = world.fresh(asked)
    try:
        with world.connect(user) as connection:
            if asked.operation == "connect":
                return True
            session = connection.session()
            target = session.topic(asked.name) if asked.type == "topic" else session.queue(asked.name)
            if asked.operation == "produce":
                session.producer(target).send("x")
            elif asked.operation == "browse":
                list(session.browser(target))
            else:
                session.consumer(target)
    except SecurityError:
        return False
    return True


def by_stomp(world: World, user: str, asked: Asked) -> bool | None:
    """None for what STOMP has no frame for."""
    asked = world.fresh(asked)
    if asked.operation == "browse" or (asked.name or "").startswith("mq.metrics"):
        return None
    bare = Bare(world.ports["stomp"])
    try:
        bare.send("CONNECT", {"accept-version": "1.2", "host": "h", "login": user, "passcode": "secret"})
        frame = bare.receive()
        if asked.operation == "connect" or frame is None or frame.command != "CONNECTED":
            return frame is not None and frame.command == "CONNECTED"
        destination = f"/{asked.type}/{asked.name}"
        if asked.operation == "produce":
            bare.send("SEND", {"destination": destination, "receipt": "r"}, b"x")
        else:
            bare.send("SUBSCRIBE", {"destination": destination, "id": "1", "ack": "client", "receipt": "r"})
        while (frame := bare.receive()) is not None and frame.command == "MESSAGE":
            continue
        return frame is not None and frame.command == "RECEIPT"
    finally:
        bare.close()


def by_rest(world: World, user: str, asked: Asked) -> bool | None:
    asked = world.fresh(asked)
    if asked.type == "topic" and asked.operation == "consume":
        return None
    ways = {
        "produce": ("POST", "messages"),
        "consume": ("POST", "receive"),
        "browse": ("GET", "messages"),
        "connect": ("GET", "messages"),
    }
    method, rest = ways[asked.operation]
    name = asked.name or "kept"
    answer = httpx.request(
        method,
        f"http://127.0.0.1:{world.ports['httpjms']}/{asked.type}s/{name}/{rest}",
        auth=(user, "secret"),
        json={"body": "x"} if asked.operation == "produce" else None,
        timeout=60,
    )
    assert answer.status_code in (200, 201, 202, 204, 401, 403), answer.text
    return answer.status_code not in (401, 403)


DOORS: Any = {"jms": by_handles, "stomp": by_stomp, "httpjms": by_rest}


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("door", DOORS)
def test_the_command_and_the_door_agree(world: World, door: str, user: str) -> None:
    differing, allowed = [], 0
    for asked in ASKED:
        name = "not.there.yet" if asked.name == "fresh" else asked.name
        told = world.admin.why_denied(user, asked.operation, name, asked.type, door)
        found = DOORS[door](world, user, asked)
        allowed += bool(found)
        if found is not None and found != told["allowed"]:
            differing.append((asked, found, told))
    assert differing == []
    assert bool(allowed) == (user != "gone" and (user != "stranger" or door == "httpjms"))


@pytest.mark.parametrize("user", USERS)
def test_of_administration_as_well(world: World, user: str) -> None:
    try:
        world.connect(user, "admin").admin().list_services()
        found = True
    except SecurityError:
        found = False
    assert world.admin.why_denied(user, "connect", service="admin")["allowed"] == found
    assert found == (user == "root")


def test_the_right_that_is_missing_is_the_one_that_is_named(world: World) -> None:
    why = world.admin.why_denied
    assert why("stranger", "produce", "kept")["request"] == "connect to NORMAL services"
    assert why("stranger", "produce", "kept")["rule"] == "connection.NORMAL.deny.user=stranger"
    assert why("bob", "produce", "not.there")["request"] == "create queues by using them"
    assert why("bob", "consume", "kept")["rule"] == "queue.kept.consume.deny.user=bob"
    assert why("carl", "consume", "kept")["rule"] == "queue.kept.consume.allow.group=user"
    assert why("gone", "connect", service="admin") == {
        "user": "gone",
        "request": "connect to ADMIN services",
        "active": False,
        "allowed": False,
        "rule": "connection.ADMIN.allow.group=admin",
    }


def test_what_cannot_be_asked_is_refused(world: World) -> None:
    why = world.admin.why_denied
    for told, arguments in {
        "no user": ("eve", "consume", "kept"),
        "one of produce": ("ann", "eat", "kept"),
        "carries administration alone": ("ann", "consume", "kept", "queue", "admin"),
        "no service": ("ann", "consume", "kept", "queue", "smtp"),
        "name one": ("ann", "consume"),
        "is one of produce, consume, create": ("ann", "browse", "news", "topic"),
    }.items():
        with pytest.raises((ConfigError, BrokerError), match=told):
            why(*arguments)


def test_connecting_is_asked_for_by_kind_or_by_service(tmp_path: Path) -> None:
    with ExitStack() as opened:
        _connecting(Outside(tmp_path, opened))


def _connecting(outside: Outside) -> None:
    for given, request, allowed in (
        ("ADMIN", "connect to ADMIN services", False),
        ("NORMAL", "connect to NORMAL services", True),
        ("admin", "connect to ADMIN services", False),
        ("jms", "connect to NORMAL services", True),
        (None, "connect to NORMAL services", True),
    ):
        found = outside.admin.why_denied("ann", "connect", given)
        assert (found["request"], found["allowed"]) == (request, allowed), given
    with pytest.raises(ConfigError, match="NORMAL, ADMIN"):
        outside.admin.why_denied("ann", "connect", "orders")
