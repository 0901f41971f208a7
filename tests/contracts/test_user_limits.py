"""What one user may make by the services, whichever way he comes; what is gone counts no more, and others are free."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

import raybroker as rb
from raybroker.errors import ResourceAllocationError
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.scram import Verifier
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.stomp_socket import StompSocket
from tests.contracts.test_services import RULES, Outside

MOST = 3


OF_EACH: dict[str, object] = {
    f"raybroker.service.user_{what}_max": MOST for what in ("destinations", "temporary", "subscriptions", "consumers")
}


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    with ExitStack() as opened:
        made = Outside(
            tmp_path,
            opened,
            **{
                "imq.service.activelist": "jms,stomp,httpjms",
                **OF_EACH,
            },
        )
        made.rules.write_text(RULES.replace("create.allow.user=ann", "create.allow.user=*"))
        yield made


def test_destinations_are_bounded_by_every_way_in(outside: Outside) -> None:
    told = rf"user 'ann' has {MOST} destinations and may have {MOST} \(raybroker\.service\.user_destinations_max\)"
    session = outside.connect("ann").session()
    for number in range(MOST):
        session.producer(f"q{number}").send("x")
    with pytest.raises(ResourceAllocationError, match=told):
        session.producer("one.more")
    url = f"http://127.0.0.1:{outside.ports['httpjms']}/queues"
    answer = httpx.post(f"{url}/one.more/messages", json={"body": 1}, auth=("ann", "secret"), timeout=30)
    assert (answer.status_code, "user_destinations_max" in answer.json()["detail"]) == (503, True), answer.text
    with closing(StompSocket(socket.create_connection(("127.0.0.1", outside.ports["stomp"]), timeout=20))) as client:
        error = client.login().refused("SEND", {"destination": "/queue/one.more"})
    assert "user_destinations_max" in error.headers["message"]
    session.producer("q1").send("those there are may be used")
    outside.connect("bob").session().producer("bobs").send("x")
    outside.admin.destroy_destination("queue", "q0")
    session.producer("one.more").send("x")
    assert "one.more" in [row["name"] for row in outside.admin.list_destinations()]


def test_temporary_destinations_are_bounded_until_they_are_gone(outside: Outside) -> None:
    connection = outside.connect("ann")
    session = connection.session()
    made = [session.temporary_queue() for _ in range(MOST)]
    with pytest.raises(ResourceAllocationError, match="user_temporary_max"):
        outside.connect("ann").session().temporary_topic()
    made[0].delete()
    session.temporary_topic()
    outside.connect("bob").session().temporary_queue()


def test_durable_subscriptions_are_bounded_until_they_are_ended(outside: Outside) -> None:
    session = outside.connect("ann", client_id="me").session()
    news = session.topic("news")
    for number in range(MOST):
        session.durable_consumer(news, f"s{number}").close()
    session.durable_consumer(news, "s0").close()
    with pytest.raises(ResourceAllocationError, match="user_subscriptions_max"):
        session.durable_consumer(news, "one more")
    session.unsubscribe("s1")
    session.durable_consumer(news, "one more").close()


def test_consumers_are_bounded_over_all_connections_of_a_user(outside: Outside) -> None:
    one, other = outside.connect("ann").session(), outside.connect("ann").session()
    consumers = [(one, other)[number % 2].consumer("q") for number in range(MOST)]
    with pytest.raises(ResourceAllocationError, match="user_consumers_max"):
        other.consumer("q")
    consumers[0].close()
    other.consumer("q")
    outside.inside.session().consumer("q")


def test_what_was_made_counts_after_the_broker_has_restarted(tmp_path: Path) -> None:
    """As long as it is there: its process has ended, and the host with what users have made went on."""
    security = tmp_path / "security"
    security.mkdir()
    UserFile(security / "passwd").add("ann", UserEntry(str(Verifier.from_password("secret", b"s" * 16, 64)), "user"))
    properties: dict[str, object] = {
        "imq.service.activelist": "jms",
        "imq.hostname": "127.0.0.1",
        "imq.portmapper.port": 0,
        "imq.autocreate.reaptime": 3600,
        **OF_EACH,
    }
    with ClusterRig(tmp_path, 1, **properties) as rig, ExitStack() as opened:  # type: ignore[arg-type]

        def ann(client_id: str | None = None) -> Any:
            port = rig.brokers["b1"].services.own()[2]["portmapper"]
            made = rb.connect(f"mq://127.0.0.1:{port}/", username="ann", password="secret", client_id=client_id)
            opened.callback(made.close)
            return made

        first = ann("me").session()
        for number in range(MOST):
            first.producer(f"q{number}")
            first.durable_consumer(first.topic("news"), f"s{number}").close()
            first.temporary_queue()
        rig.start("b1", rig.kill_process("b1"))
        rig.io.run(rig._opened())
        session = ann().session()
        for what, more in {
            "user_destinations_max": lambda: session.producer("one.more"),
            "user_subscriptions_max": lambda: session.shared_durable_consumer(session.topic("news"), "one more"),
            "user_temporary_max": session.temporary_queue,
        }.items():
            with pytest.raises(ResourceAllocationError, match=f"has {MOST} .*{what}"):
                more()
        session.producer("q1")
        admin = rig.connect("b1").admin()
        admin.destroy_destination("queue", "q0")
        session.producer("one.more")
        admin.destroy_subscription("s0", "me")
        session.shared_durable_consumer(session.topic("news"), "one more").close()
