"""A driver on one node of the partition test: ``python -m tests.cluster.partition_agent ADDRESS CLUSTER``.

Reads lines [function, arguments] from its standard input and writes a line of JSON for each.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import Any, TextIO

VIEW_TIMEOUT_S = 2.0
JOIN_S = 60.0


class Functions:
    """What an agent can do; each method by its name. A broker is asked as its node's clients ask it."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._connections: dict[str, Any] = {}
        self._actors: dict[str, Any] = {}

    def start(self, brokers: int, config: dict[str, Any]) -> list[str]:
        import raybroker as rb

        return list(rb.start(self._cluster, brokers=brokers, config=config).brokers)

    def places(self) -> dict[str, str]:
        """Broker → address of its node."""
        from raybroker.actors import cluster, runtime

        addresses = {node.id: node.ip for node in runtime.nodes()}
        found = cluster.find(self._cluster)
        assert found is not None
        return {broker: addresses[found.state(broker)["node"]] for broker in found.brokers}

    def connect(self, broker: str) -> bool:
        """Be a client of one broker."""
        import raybroker as rb
        from raybroker.actors import runtime

        self._connections[broker] = rb.connect(cluster=self._cluster, broker=broker)
        self._actors[broker] = runtime.find_actor(runtime.broker_name(self._cluster, broker))
        return True

    def view(self, broker: str) -> dict[str, str]:
        """Broker → state, as one broker sees it."""
        from raybroker.actors import runtime

        rows = runtime.call_blocking(self._actors[broker].brokers, timeout_s=VIEW_TIMEOUT_S)[2]
        return {name: state for name, state, _, _ in rows}

    def pids(self, broker: str) -> dict[str, int]:
        from raybroker.actors import runtime

        return dict(runtime.call_blocking(self._actors[broker].pids, timeout_s=VIEW_TIMEOUT_S))

    def create(self, broker: str, queue: str, attributes: dict[str, Any]) -> bool:
        self._connections[broker].admin().create_destination("queue", queue, **attributes)
        return True

    def replication(self, broker: str, queue: str) -> dict[str, Any]:
        """Who leads the log of a queue with copies, and how far each is, as one broker knows it."""
        found: dict[str, Any] = self._connections[broker].admin().query_destination("queue", queue)["replication"]
        return found

    def copies(self, broker: str) -> list[dict[str, Any]]:
        """What the copies that a broker keeps say of themselves; none where that cannot be asked now."""
        from raybroker.actors import runtime
        from raybroker.errors import BrokerError

        try:
            rows = runtime.call_blocking(self._actors[broker].peer, "copies", {}, timeout_s=VIEW_TIMEOUT_S)
        except BrokerError:
            return []
        return list(rows.values())

    def queues(self, broker: str) -> list[str]:
        """Those that one broker has itself."""
        from raybroker.actors import runtime

        args = {"verb": "list_destinations", "args": {"type": "queue"}}
        rows = runtime.call_blocking(self._actors[broker].peer, "admin", args, timeout_s=VIEW_TIMEOUT_S)
        return [row["name"] for row in rows]

    def members(self, broker: str, queue: str) -> dict[str, int]:
        """Broker → messages there."""
        row = self._connections[broker].admin().query_destination("queue", queue)
        return {member["broker"]: member["messages"] for member in row["members"]}


def _join(address: str) -> None:
    """Connect to the Ray as soon as this node belongs to it."""
    import ray

    deadline = time.monotonic() + JOIN_S
    while True:
        try:
            ray.init(address=address, namespace="tests", log_to_driver=False, logging_level=logging.CRITICAL)
        except (RuntimeError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _own_output() -> TextIO:
    """Standard output for answers alone: what Ray writes there, also from its own threads in C++, goes to stderr."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def main(arguments: list[str]) -> int:
    address, cluster = arguments
    from raybroker.errors import BrokerError

    answers = _own_output()
    _join(address)
    functions = Functions(cluster)
    for line in sys.stdin:
        function, given = json.loads(line)
        try:
            answer = getattr(functions, function)(*given)
        except BrokerError as error:
            answer = {"error": type(error).__name__, "text": str(error)}
        print(json.dumps(answer), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
