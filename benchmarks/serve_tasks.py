"""Tasks of Ray Serve a second: the adapter for raybroker, and Serve's own for Celery with Redis.

    python -m benchmarks.serve_tasks --rounds 5 --tasks 1000

Both have one replica with the same handler and the same number of places, in one Ray, and the same callers, which
enqueue from threads.  Rounds take turns.  A round is over when the handler has been called for each task; the handler
appends a byte to a file.  raybroker has each task and each result on disk before it says so; Redis is as Debian's
``redis-server`` is delivered, which does not sync.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

CALLERS: Final = 16
PLACES: Final = 8
GOAL: Final = 2.0
PATIENCE_S: Final = 300.0


def deployment(config: Any, name: str) -> Any:
    from ray import serve
    from ray.serve.task_consumer import task_consumer, task_handler

    @serve.deployment(name=name, num_replicas=1, max_ongoing_requests=PLACES, ray_actor_options={"num_cpus": 0})
    @task_consumer(task_processor_config=config)
    class Consumer:
        @task_handler(name="mark")
        def mark(self, path: str) -> int:
            with Path(path).open("ab", buffering=0) as file:
                return file.write(b".")

    return Consumer


def one_round(processor: Any, tasks: int, folder: Path) -> tuple[float, float]:
    """Tasks a second that were enqueued, and from the first one enqueued to the last one done."""
    path = folder / f"{time.monotonic_ns()}"
    path.touch()
    begun = time.perf_counter()
    with ThreadPoolExecutor(CALLERS) as callers:
        list(callers.map(lambda _: processor.enqueue_task_sync("mark", [str(path)]), range(tasks)))
    enqueued = time.perf_counter()
    while path.stat().st_size < tasks:
        if time.perf_counter() > enqueued + PATIENCE_S:
            raise TimeoutError(f"{path.stat().st_size} of {tasks} tasks are done")
        time.sleep(0.002)
    return tasks / (enqueued - begun), tasks / (time.perf_counter() - begun)


def redis_at(folder: Path, port: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)], stdout=subprocess.DEVNULL
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--port", type=int, default=26379, help="of Redis; the next one is Serve's")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rbs") as made:
        folder = Path(made)
        os.environ.update(RAY_TMPDIR=made, RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")
        redis = redis_at(folder, given.port)
        try:
            report(compared(folder, given))
        finally:
            redis.terminate()
            redis.wait()
            end_ray()  # The last of all: threads of Celery's adapter may end this process when they miss Ray.
    return 0


def end_ray() -> None:
    import ray

    ray.shutdown()


def report(found: dict[str, list[tuple[float, float]]]) -> None:
    pairs = zip(found["raybroker"], found["celery"], strict=True)
    ratios = [ours[1] / theirs[1] for ours, theirs in pairs]
    middle = statistics.median(ratios)
    print(f"done, ratio {middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f}); the goal is {GOAL}", flush=True)


def compared(folder: Path, given: argparse.Namespace) -> dict[str, list[tuple[float, float]]]:
    """What each did in each round."""
    import ray
    from ray import serve
    from ray.serve.schema import CeleryAdapterConfig, TaskProcessorConfig
    from ray.serve.task_consumer import instantiate_adapter_from_config

    import raybroker as rb
    from raybroker.serve import RaybrokerTaskProcessor

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, namespace="benchmarks")
    cluster = rb.start(config={"raybroker.store.dir": str(folder / "store")})
    url = f"redis://127.0.0.1:{given.port}"
    configs = {
        "raybroker": TaskProcessorConfig(queue_name="tasks", adapter=RaybrokerTaskProcessor, adapter_config={}),
        "celery": TaskProcessorConfig(
            queue_name="tasks", adapter_config=CeleryAdapterConfig(broker_url=f"{url}/0", backend_url=f"{url}/1")
        ),
    }
    serve.start(http_options={"port": given.port + 1, "host": "127.0.0.1"})
    processors = {}
    try:
        for name, config in configs.items():
            serve.run(deployment(config, name).bind(), name=name, route_prefix=None)
            processors[name] = instantiate_adapter_from_config(task_processor_config=config)
            one_round(processors[name], max(given.tasks // 10, 1), folder)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in configs}
        for number in range(given.rounds):
            for name in configs if number % 2 else reversed(configs):
                found[name].append(one_round(processors[name], given.tasks, folder))
                print(f"{name:10} enqueued {found[name][-1][0]:7.0f}/s   done {found[name][-1][1]:7.0f}/s", flush=True)
        return found
    finally:
        if "raybroker" in processors:
            processors["raybroker"].disconnect()
        serve.shutdown()
        cluster.stop()


if __name__ == "__main__":
    sys.exit(main())
