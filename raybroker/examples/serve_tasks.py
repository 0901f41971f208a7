"""Batch inference behind an HTTP service: long work goes through a queue, and nothing of it is lost.

A service takes documents over HTTP and answers at once with the id of a task.  Replicas of another deployment, which
would have the GPUs, run a model over them.  One of the replicas is killed while it works, as a spot node would be taken
away: its documents come again elsewhere, and each has one result in the end.

    python -m raybroker.examples.serve_tasks --documents 200
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import urllib.request
from typing import Any

import ray
from ray import serve
from ray.serve.schema import TaskProcessorConfig
from ray.serve.task_consumer import instantiate_adapter_from_config, task_consumer, task_handler
from starlette.requests import Request

import raybroker as rb
from raybroker.serve import RaybrokerAdapterConfig, RaybrokerTaskProcessor

PATIENCE_S = 120.0
"""How long the results may take."""

TASKS = TaskProcessorConfig(
    queue_name="documents",
    adapter=RaybrokerTaskProcessor,
    adapter_config=RaybrokerAdapterConfig(backoff_s=(0.1, 2.0)),
    max_retries=3,
    failed_task_queue_name="documents.failed",
    unprocessable_task_queue_name="documents.unprocessable",
)


@serve.deployment(num_replicas=2, max_ongoing_requests=4, ray_actor_options={"num_cpus": 0})
@task_consumer(task_processor_config=TASKS)
class Model:
    """The replicas that do the work. A handler may be a function or a coroutine."""

    @task_handler(name="count_words")
    def count_words(self, text: str) -> dict[str, Any]:
        time.sleep(0.02)  # The model.
        if not text:
            raise ValueError("an empty document")
        return {"words": len(text.split()), "pid": os.getpid()}


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Front:
    """POST a document, get the id of its task; GET /ID, get how it stands."""

    def __init__(self) -> None:
        self.tasks = instantiate_adapter_from_config(task_processor_config=TASKS)

    async def __call__(self, request: Request) -> dict[str, Any]:
        if request.method == "POST":
            text = (await request.body()).decode()
            task = await self.tasks.enqueue_task_async("count_words", args=[text])
        else:
            task = await self.tasks.get_task_status_async(request.url.path.rpartition("/")[2])
        return {"id": task.id, "status": task.status, "result": task.result}


def call(url: str, text: str | None = None) -> dict[str, Any]:
    data = text.encode() if text is not None else None
    with urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=PATIENCE_S) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def results(url: str, ids: list[str]) -> dict[str, dict[str, Any]]:
    """The results of all tasks, once there are all of them."""
    found: dict[str, dict[str, Any]] = {}
    until = time.monotonic() + PATIENCE_S
    while len(found) < len(ids) and time.monotonic() < until:
        for task_id in ids:
            if task_id not in found and (row := call(f"{url}/{task_id}"))["status"] != "PENDING":
                found[task_id] = row
        time.sleep(0.2)
    return found


def run(documents: int, port: int) -> dict[str, Any]:
    """The example, in the Ray and with the brokers that are there; what it has found."""
    serve.start(http_options={"port": port, "host": "127.0.0.1"})
    serve.run(Model.bind(), name="model", route_prefix=None)  # type: ignore[attr-defined]  # the decorator is not typed
    serve.run(Front.bind(), name="front", route_prefix="/tasks")  # type: ignore[attr-defined]  # as above
    url = f"http://127.0.0.1:{port}/tasks"
    first = call(url, "the first document")["id"]
    victim = results(url, [first])[first]["result"]["pid"]
    texts = [" ".join(["word"] * (1 + number % 9)) for number in range(documents)]
    ids = [call(url, text)["id"] for text in texts]
    bad = call(url, "")["id"]
    os.kill(victim, signal.SIGKILL)  # As the node of a replica would be taken away.
    found = results(url, [*ids, bad])
    right = sum(found[one]["result"]["words"] == len(text.split()) for one, text in zip(ids, texts, strict=True))
    with rb.connect() as connection:
        dead = [message.body["args"] for message in connection.session().browser("documents.failed")]
    return {"documents": documents, "right": right, "failed": found[bad]["status"], "dead": dead}


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args(given)
    cluster = rb.start()
    try:
        found = run(options.documents, options.port)
    finally:
        serve.shutdown()  # type: ignore[no-untyped-call]  # Ray Serve
        cluster.stop()
        ray.shutdown()
    sys.stdout.write(f"{json.dumps(found)}\n")
    return 0 if found["right"] == found["documents"] and found["failed"] == "FAILURE" else 1


if __name__ == "__main__":
    sys.exit(main())
