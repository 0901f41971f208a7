"""Qpid JMS with ``failover:`` and a queue whose log has three copies: its leader is lost, with its disk."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.actors import runtime
from raybroker.errors import ConnectionLostError
from tests.amqp_clients.kills import QUEUE, loaded, wrong
from tests.cluster.nodes import running_nodes
from tests.cluster.test_replicas import CLUSTER, COPIED, PATIENT, create, led_by, settings
from tests.contracts.handles import until

pytestmark = [pytest.mark.clients, pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(600)]

LIMIT_S = 300
AFTER_S = 15
"""The load goes on for so long after the loss."""
LED_S = 60


def address(broker: str) -> str:
    actor: Any = runtime.find_broker(CLUSTER, broker)
    return f"amqp://127.0.0.1:{runtime.call_blocking(actor.peer, 'doors', {})[2]['amqp']}"


def test_nothing_confirmed_is_lost_with_the_leader_and_its_disk(tmp_path: Path) -> None:
    config = {**settings(tmp_path), "imq.service.activelist": "amqp,jms"}  # Gateways reach other brokers by jms.
    with running_nodes(3) as nodes, contextlib.ExitStack() as opened:
        cluster: Any = rb.start(CLUSTER, brokers=3, config=config)

        def end() -> None:
            with contextlib.suppress(ConnectionLostError):  # Of the node that is lost.
                cluster.stop()

        opened.callback(end)
        connection = opened.enter_context(rb.connect(cluster=CLUSTER, broker="b1", **PATIENT))
        create(connection.admin(), QUEUE, **COPIED)
        lost = led_by(connection, QUEUE)
        addresses = {name: address(name) for name in ("b1", "b2", "b3")}

        def lose_the_leader() -> None:
            nodes.kill(cluster.state(lost)["node"])
            shutil.rmtree(tmp_path / CLUSTER / lost)
            time.sleep(AFTER_S)

        # The first is the leader: connections go elsewhere, and those that come later find that it is gone.
        urls = ",".join([addresses.pop(lost), *addresses.values()])
        history = loaded(urls, lose_the_leader, LIMIT_S)
        found = wrong(history, 1)
        assert not found, found
        with rb.connect(cluster=CLUSTER, broker=next(iter(addresses)), **PATIENT) as left:
            until(lambda: led_by(left, QUEUE) in addresses, "another broker leads", LED_S)
        print(f"{len(history.confirmed)} confirmed, {len(history.received)} received")
