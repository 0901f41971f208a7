"""Inference on spot nodes: one is about to be taken away, and its documents go on elsewhere, from where they were.

A pool reads documents, page by page.  Then its node is drained, as the notice of a cloud would have it: what was not
begun goes to others, a document that is being read keeps how far it is and goes back, and the pool has its workers on
other nodes before those on the drained one end.  The Ray cluster needs two nodes.

    python -m raybroker.examples.drained_node --documents 12
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import ray

import raybroker as rb

QUEUE, DONE = "spot.documents", "spot.read"
PAGES = 20
PAGE_S = 0.1
PATIENCE_S = 90.0
"""How long each part may take."""
NOTICE_S = 60
"""How long before its end a node is drained."""


@rb.listener(queue=QUEUE, prefetch=10)
def read(message: rb.Message) -> None:
    """Read a document, from the page where somebody else has stopped."""
    begun = page = message.checkpoint_state or 0
    while page < PAGES:
        time.sleep(PAGE_S)
        page += 1
        if message.draining is not None:
            message.checkpoint(page)
            message.fail(0, cause="preempted")  # It has no limit, and comes again at once.
            return
    with rb.connect(cluster=message.body["cluster"]) as connection:
        connection.session().producer(DONE).send({"document": message.body["document"], "from_page": begun})


def nodes_of(admin: Any) -> list[str]:
    """The nodes of the workers."""
    return [row["labels"][0] for row in admin.list_consumers(QUEUE)]


def run(documents: int, cluster: str = "default", workers: int = 2) -> dict[str, Any]:
    """Returns what was found; raises TimeoutError when something takes too long."""
    with rb.connect(cluster=cluster) as connection:
        admin = connection.admin()
        admin.create_destination("queue", QUEUE, if_exists="keep")
        with rb.deploy(read, instances=workers, cluster=cluster, actor_options={"num_cpus": 1}) as pool:
            connection.session().producer(QUEUE).send_many(
                {"document": number, "cluster": cluster} for number in range(documents)
            )
            _wait(lambda: pool.totals()["buffered"] > 0)
            node, began = nodes_of(admin)[0], time.monotonic()
            admin.drain_node(node, NOTICE_S)
            _wait(lambda: len(nodes_of(admin)) == workers and node not in nodes_of(admin))
            elsewhere_s = time.monotonic() - began
            consumer = connection.session().consumer(DONE)
            done = [consumer.receive(timeout=PATIENCE_S) for _ in range(documents)]
            found = {
                "documents": len({message.body["document"] for message in done if message is not None}),
                "went_on": sum(message.body["from_page"] > 0 for message in done if message is not None),
                "failures": pool.totals()["failures"],
                "elsewhere_s": round(elsewhere_s, 1),
            }
        admin.drain_node(node, off=True)
    return found


def _wait(true: Any) -> None:
    until = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > until:
            raise TimeoutError(f"not within {PATIENCE_S:g} s")
        time.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m raybroker.examples.drained_node", description=__doc__)
    parser.add_argument("--documents", type=int, default=12)
    args = parser.parse_args()
    rb.start()
    if len([node for node in ray.nodes() if node["Alive"]]) < 2:  # type: ignore[no-untyped-call]  # Ray
        sys.stderr.write("this Ray has one node, and its workers have no other one to go to; add one: ray start\n")
        return 2
    found = run(args.documents)
    sys.stdout.write(f"{json.dumps(found)}\n")
    return 0 if found["documents"] == args.documents and found["went_on"] and not found["failures"] else 1


if __name__ == "__main__":
    sys.exit(main())
