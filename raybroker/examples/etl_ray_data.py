"""Work orders into Ray Data, and results out of it, while tasks are taken away: each order has one result.

Orders wait in a queue.  A read of Ray Data takes them round by round, a task on a spot node works each batch out, and
the results are written to another queue.  Some tasks die with their process: Ray runs them again, their reader gives
them the same orders again, and what was written is not written twice.

    python -m raybroker.examples.etl_ray_data --orders 600
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray

import raybroker as rb

ORDERS, RESULTS = "etl.orders", "etl.results"
ROUND_MESSAGES = 200
"""Orders of a round; each is acknowledged when its results are stored."""


def work_out(batch: dict[str, Any], died: str) -> dict[str, Any]:
    """The results of a batch. Once in each round the process is lost while it works, as spot nodes are."""
    mark = Path(died, str(int(batch["order"].min()) // ROUND_MESSAGES))
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"order": batch["order"], "total": batch["pieces"] * batch["price"]}


def run(orders: int, cluster: str = "default") -> dict[str, int]:
    """Work out so many orders in a running cluster; what became of them."""
    with rb.connect(cluster=cluster) as connection, tempfile.TemporaryDirectory() as died:
        admin = connection.admin()
        for queue in (ORDERS, RESULTS):
            admin.create_destination("queue", queue, if_exists="keep", hosting="shared")
        connection.session().producer(ORDERS).send_many(
            {"order": n, "pieces": n % 7, "price": 3} for n in range(orders)
        )
        read = rb.data.read_queue(
            ORDERS, cluster=cluster, limit=orders, until="stopped", round_messages=ROUND_MESSAGES, idle_s=0.5
        )
        results = read.map_batches(work_out, batch_size=50, fn_kwargs={"died": died})
        rb.data.write_queue(results, RESULTS, cluster=cluster)
        found = [message.body for message in connection.session().browser(RESULTS)]
        report = {
            "orders": orders,
            "results": len(found),
            "different": len({body["order"] for body in found}),
            "wrong": sum(body["total"] != body["order"] % 7 * 3 for body in found),
            "left": admin.query_destination("queue", ORDERS)["messages"],
            "tasks_lost": len(os.listdir(died)),
        }
        for queue in (ORDERS, RESULTS):
            admin.destroy_destination("queue", queue)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m raybroker.examples.etl_ray_data")
    parser.add_argument("--orders", type=int, default=600)
    options = parser.parse_args()
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    rb.start()
    report = run(options.orders)
    sys.stdout.write(f"{json.dumps(report)}\n")
    return 0 if report["results"] == report["different"] == report["orders"] and not report["wrong"] else 1


if __name__ == "__main__":
    sys.exit(main())
