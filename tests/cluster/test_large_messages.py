"""Large messages with real hosts, which are killed while bodies go in and out."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import ConnectionLostError
from raybroker.model.blocks.large_block import LARGE_BODY_BYTES

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
COUNT = 6


def body(number: int) -> bytes:
    return random.Random(number).randbytes(4 * LARGE_BODY_BYTES + number)


def test_a_killed_host_loses_no_large_message(cluster: Any) -> None:
    with rb.connect() as connection:
        admin = connection.admin()
        admin.create_destination("queue", "large", hosting="dedicated", maxBytesPerMsg=-1, maxTotalMsgBytes=-1)
        session = connection.session(ack="client")
        producer = session.producer("large")
        (host,) = {row["host"] for row in admin.list_destinations("queue") if row["name"] == "large"}

        def kill() -> None:
            os.kill(cluster.pids()[host.rpartition("/")[2]], signal.SIGKILL)

        producer.send(body(0))
        futures = [producer.send_async(body(number)) for number in range(1, COUNT)]
        kill()
        assert all(future.result(120) for future in futures)
        found: dict[int, bytes] = {}
        killed = False
        while len(found) < COUNT:
            message = session.receive("large", timeout=120)
            assert message is not None
            found[len(message.body) % LARGE_BODY_BYTES] = message.body
            if len(found) == 2 and not killed:
                killed = True
                kill()
            with suppress(ConnectionLostError):  # Then it comes again.
                message.acknowledge()
        assert found == {number: body(number) for number in range(COUNT)}
