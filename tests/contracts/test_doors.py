"""A user without rights tries every operation by every way in: each is refused with its error, and nothing happens.

The ways are the native protocol, the same inside of a WebSocket, REST, STOMP, the service admin, and administration
over HTTP; the command line with -b is in test_cli_outside.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

import raybroker as rb
from raybroker.errors import SecurityError
from raybroker.services.administration.resources import RESOURCES, Resource
from tests.contracts.stomp_rig import Bare
from tests.contracts.test_services import Outside, until

pytestmark = pytest.mark.xdist_group("doors")  # One worker makes what they share.

RULES: Final = """version=JMQFileAccessControlModel/100
connection.NORMAL.allow.user=*
connection.ADMIN.allow.group=admin
queue.*.produce.allow.user=ann
queue.*.consume.allow.user=ann
queue.*.browse.allow.user=ann
topic.*.produce.allow.user=ann
topic.*.consume.allow.user=ann
queue.create.allow.user=ann
topic.create.allow.user=ann
"""
OPERATIONS: Final = {
    "produce": ("produce", "kept", "queue", "produce with queue 'kept'"),
    "produce in a transaction": ("produce", "kept", "queue", "produce with queue 'kept'"),
    "consume": ("consume", "kept", "queue", "consume with queue 'kept'"),
    "browse": ("browse", "kept", "queue", "browse with queue 'kept'"),
    "publish": ("produce", "news", "topic", "produce with topic 'news'"),
    "subscribe": ("consume", "news", "topic", "consume with topic 'news'"),
    "subscribe durably": ("consume", "news", "topic", "consume with topic 'news'"),
    "end a subscription": ("consume", "news", "topic", "consume with topic 'news'"),
    "create a queue": ("create", None, "queue", "create queues"),
    "create a topic": ("create", None, "topic", "create topics"),
    "consume dead messages": ("consume", "mq.sys.dmq", "queue", "consume with queue 'mq.sys.dmq'"),
    "consume metrics": ("consume", "mq.metrics.broker", "topic", "(consume with topic 'mq.metrics|create topics)"),
}
"""What is tried → (operation, destination, type) as why-denied names it, and what the error says."""
SERVICES: Final = "jms,admin,httpjms,stomp,httpadmin"


class Doors(Outside):
    """A broker with a way in of each kind; ann has all rights and bob none."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        super().__init__(
            folder,
            opened,
            **{
                "imq.service.activelist": SERVICES,
                "imq.audit.enabled": True,
                "imq.metrics.topic.enabled": True,
            },
        )
        self.rules.write_text(RULES)
        self.folder = folder
        ann = self.connect("ann", client_id="of ann")
        session = ann.session()
        session.producer("kept").send("stays")
        session.durable_consumer(session.topic("news"), "daily").close()
        session.producer(session.topic("news")).send("stays too")
        ann.close()

    def web(self) -> Any:
        made = rb.connect(
            f"http://127.0.0.1:{self.ports['httpjms']}/", username="bob", password="secret", client_id="of ann"
        )
        self._opened.callback(made.close)
        made.start()
        return made

    def stomp(self) -> Bare:
        made = Bare(self.ports["stomp"])
        self._opened.callback(made.close)
        return made.login("bob", **{"client-id": "of bob"})

    def rest(self) -> httpx.Client:
        made = httpx.Client(base_url=f"http://127.0.0.1:{self.ports['httpjms']}", auth=("bob", "secret"), timeout=30)
        self._opened.callback(made.close)
        return made

    def state(self) -> dict[str, Any]:
        """What bob could have changed."""
        return {
            "destinations": {
                (row["type"], row["name"]): (row["messages"], row["messages_in"], row["producers"], row["state"])
                for row in self.admin.list_destinations(temporary=True)
            },
            "consumers": [row["destination"] for row in self.admin.list_consumers()],
            "subscriptions": [(row["name"], row["messages"]) for row in self.admin.list_subscriptions()],
        }

    def denials(self) -> list[dict[str, Any]]:
        found = [
            json.loads(line) for path in (self.folder / "audit").glob("*.log") for line in path.read_text().splitlines()
        ]
        return [row for row in found if (row["event"], row.get("user")) == ("denied", "bob")]


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """For all tests here: what is refused leaves nothing behind."""
    with ExitStack() as opened:
        yield Doors(Path(tmp_path_factory.mktemp("doors")), opened)


def by_handles(client: Any, what: str) -> None:
    session = client.session(transacted=what == "produce in a transaction")
    _, name, kind, _ = OPERATIONS[what]
    queue = name or "fresh"
    topic = session.topic(queue) if kind == "topic" else None
    attempts: dict[str, Callable[[], Any]] = {
        "produce": lambda: session.producer(queue).send("x"),
        "produce in a transaction": lambda: (session.producer(queue).send("x"), session.commit()),
        "consume": lambda: session.receive(queue, timeout=5),
        "browse": lambda: list(session.browser(session.queue(queue))),
        "publish": lambda: session.producer(topic).send("x"),
        "subscribe": lambda: session.consumer(topic),
        "subscribe durably": lambda: session.durable_consumer(topic, "of bob"),
        "end a subscription": lambda: session.unsubscribe("daily"),
        "create a queue": lambda: session.producer(queue).send("x"),
        "create a topic": lambda: session.producer(topic).send("x"),
        "consume dead messages": lambda: session.receive(queue, timeout=5),
        "consume metrics": lambda: session.consumer(topic),
    }
    try:
        attempts[what]()
    finally:
        session.close()


@pytest.mark.parametrize("way", ["native", "WebSocket"])
@pytest.mark.parametrize("what", OPERATIONS)
def test_by_handles(doors: Doors, way: str, what: str) -> None:
    before, told = doors.state(), len(doors.denials())
    client = doors.web() if way == "WebSocket" else doors.connect("bob", client_id="of ann")
    with pytest.raises(SecurityError, match=rf"user 'bob' may not {OPERATIONS[what][3]}"):
        by_handles(client, what)
    client.close()
    until(lambda: doors.state() == before)
    assert len(doors.denials()) > told, "the audit log has it"


STOMP: Final = {
    "produce": ("SEND", {"destination": "/queue/kept"}),
    "consume": ("SUBSCRIBE", {"destination": "/queue/kept", "id": 1}),
    "publish": ("SEND", {"destination": "/topic/news"}),
    "subscribe": ("SUBSCRIBE", {"destination": "/topic/news", "id": 1}),
    "subscribe durably": ("SUBSCRIBE", {"destination": "/topic/news", "id": 1, "durable-subscription-name": "s"}),
    "create a queue": ("SEND", {"destination": "/queue/fresh"}),
    "create a topic": ("SEND", {"destination": "/topic/fresh"}),
    "consume dead messages": ("SUBSCRIBE", {"destination": "/queue/mq.sys.dmq", "id": 1}),
    "consume metrics": ("SUBSCRIBE", {"destination": "/topic/mq.metrics.broker", "id": 1}),
}


@pytest.mark.parametrize("what", STOMP)
def test_by_stomp(doors: Doors, what: str) -> None:
    before = doors.state()
    command, headers = STOMP[what]
    error = doors.stomp().refused(command, {**headers, "receipt": "r"}, b"x" if command == "SEND" else b"")  # type: ignore[dict-item]
    assert error.headers["error-code"] == "security"
    assert error.headers["message"].startswith("user 'bob' may not ")
    until(lambda: doors.state() == before)


REST: Final = {
    "produce": ("POST", "/queues/kept/messages"),
    "consume": ("POST", "/queues/kept/receive"),
    "browse": ("GET", "/queues/kept/messages"),
    "publish": ("POST", "/topics/news/messages"),
    "create a queue": ("POST", "/queues/fresh/messages"),
    "create a topic": ("POST", "/topics/fresh/messages"),
    "consume dead messages": ("POST", "/queues/mq.sys.dmq/receive"),
}


@pytest.mark.parametrize("what", REST)
def test_by_rest(doors: Doors, what: str) -> None:
    before = doors.state()
    method, path = REST[what]
    sends = method == "POST" and path.endswith("messages")
    answer = doors.rest().request(method, path, json={"body": "x"} if sends else None)
    assert (answer.status_code, "user 'bob' may not " in answer.text) == (403, True), answer.text
    until(lambda: doors.state() == before)


@pytest.mark.parametrize("service", ["jms", "admin", "httpjms"])
def test_administration(doors: Doors, service: str) -> None:
    before = doors.state()

    def administer() -> None:
        client = doors.web() if service == "httpjms" else doors.connect("bob", service)
        client.admin().destroy_destination("queue", "kept")

    told = "may not connect to ADMIN services" if service == "admin" else "goes through an admin service"
    with pytest.raises(SecurityError, match=told):
        administer()
    assert doors.state() == before


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: f"{resource.method} {resource.path}")
def test_by_administration_over_http(doors: Doors, resource: Resource) -> None:
    before = doors.state()
    named = {"broker": "loopback", "old": "loopback", "node": "a" * 56}
    path = resource.path.format(type="queue", name="kept", id="1", what="destination", **named)
    body = {"json": {"name": "kept", "type": "queue"}} if resource.method in ("POST", "PATCH") else {}
    url = f"http://127.0.0.1:{doors.ports['httpadmin']}{path}"
    answer = httpx.request(resource.method, url, auth=("bob", "secret"), timeout=30, **body)  # type: ignore[arg-type]
    assert (answer.status_code, "user 'bob' may not connect to ADMIN" in answer.text) == (403, True), answer.text
    until(lambda: doors.state() == before)


@pytest.mark.parametrize("what", OPERATIONS)
def test_why_denied_explains_each(doors: Doors, what: str) -> None:
    operation, destination, kind, _ = OPERATIONS[what]
    found = doors.admin.why_denied("bob", operation, destination, kind)
    assert (found["allowed"], found["rule"]) == (False, "no rule speaks of the user")
    allowed = doors.admin.why_denied("ann", operation, destination, kind)
    assert allowed["allowed"] is not str(destination).startswith("mq."), "names of the broker need a rule of their own"
    with pytest.raises(SecurityError, match="may not connect to ADMIN"):
        doors.connect("ann", "admin")
    connecting = doors.admin.why_denied("bob", "connect", service="admin")
    assert (connecting["allowed"], connecting["request"]) == (False, "connect to ADMIN services")
