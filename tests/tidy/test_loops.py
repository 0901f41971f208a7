"""Nothing runs by itself but under a supervisor: loops, tasks and threads are started by ``system/supervision.py``.

ELSEWHERE has the other places, with the reason why no failure ends unseen there.  It shrinks; a new loop or a task that
nobody waits for goes under a Supervisor.
"""

from __future__ import annotations

import ast
from collections import Counter

from tests.tidy.source import Sources, nodes, package

STARTS = frozenset({"create_task", "ensure_future", "Thread", "Timer", "start_new_thread", "TaskGroup"})
SUPERVISION = "raybroker/system/supervision.py"
PROGRAMS = ("raybroker/bench/", "raybroker/demo/", "raybroker/cli/", "raybroker/analysis/", "raybroker/verify/")
"""Commands, whose end a user sees."""
RUNS_A_LOOP = "a thread with an event loop, which goes on whatever its callbacks raise"
AWAITED = "whoever asked awaits it, and gets what it raises"
ELSEWHERE: dict[str, tuple[int, str]] = {
    "raybroker/actors/hosts/host.py": (2, "a host's loop and its start; what fails is told to whoever asks"),
    "raybroker/actors/hosts/host_in_broker.py": (1, "the same, of a host in the broker's process"),
    "raybroker/actors/hosts/spare_host.py": (1, AWAITED),
    "raybroker/broker/observing/broker_metrics.py": (1, AWAITED),
    "raybroker/broker/destinations/pools.py": (1, AWAITED),
    "raybroker/client/aio/serving.py": (1, "a listener of asyncio, whose end its session is told"),
    "raybroker/client/blocking/serving.py": (1, "a listener's thread, whose end its session is told"),
    "raybroker/client/io/callbacks.py": (1, "what a callback raises is logged, and the next one is called"),
    "raybroker/client/cluster/cluster_directory.py": (1, AWAITED),
    "raybroker/client/io/io_thread.py": (4, RUNS_A_LOOP + "; " + AWAITED),
    "raybroker/client/connection/large_deliveries.py": (1, "what it raises ends the connection, see _ended"),
    "raybroker/client/ways/long_poll.py": (2, "what it raises ends the connection, see _guarded"),
    "raybroker/client/io/own_loop.py": (2, AWAITED),
    "raybroker/client/io/tasks.py": (2, "tasks of a connection: logged, see _ended"),
    "raybroker/client/listener/instance.py": (2, "what it raises ends the instance, which is then started again"),
    "raybroker/engine/path/committer.py": (1, "what it raises stops the store, see _guarded"),
    "raybroker/hosting/disk_worker.py": (1, "what a job raises is told to whoever asked"),
    "raybroker/services/native/control.py": (1, "what it raises is logged and told to the client, see _answer"),
    "raybroker/services/gateways/gateway.py": (1, "ends a thread of gateways once; the thread is a daemon"),
    "raybroker/services/http/http_server.py": (
        1,
        "what a request raises is logged and told to the client, see RequestCycle.run",
    ),
    "raybroker/services/metrics/metrics_http.py": (1, RUNS_A_LOOP),
    "raybroker/services/rest/application.py": (2, AWAITED),
    "raybroker/services/rest/long_poll.py": (1, AWAITED),
    "raybroker/services/rest/relay.py": (2, AWAITED),
    "raybroker/services/rest/user_connection.py": (1, "gives messages back; what brokers raise is expected"),
    "raybroker/services/stomp/connection.py": (1, "what it raises ends the client, who is told"),
    "raybroker/services/stomp/session.py": (1, "what it raises ends the client, who is told"),
    "raybroker/services/web/users.py": (3, AWAITED),
    "raybroker/serve/loop_thread.py": (1, RUNS_A_LOOP),
    "raybroker/serve/sending.py": (1, "what it raises is told to each of those who send"),
    "raybroker/serve/task_consumer.py": (4, "what it raises ends the connection, see run"),
    "raybroker/transport/daemon_calls.py": (1, AWAITED),
}


def started(sources: Sources) -> dict[str, int]:
    """File → how many loops, tasks and threads it starts itself."""
    found: Counter[str] = Counter()
    for path, source in sources.items():
        if path == SUPERVISION or path.startswith(PROGRAMS):
            continue
        for node in nodes(source):
            bases = node.bases if isinstance(node, ast.ClassDef) else []
            called = [node.func] if isinstance(node, ast.Call) else []
            for name in (*called, *bases):
                if (name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")) in STARTS:
                    found[path] += 1
    return dict(found)


def test_loops_are_supervised() -> None:
    found, allowed = started(package()), {path: count for path, (count, _) in ELSEWHERE.items()}
    more = {path: count for path, count in found.items() if count > allowed.get(path, 0)}
    assert not more, f"use raybroker.system.supervision.Supervisor: {more}"
    fewer = {path: found.get(path, 0) for path, count in allowed.items() if found.get(path, 0) < count}
    assert not fewer, f"ELSEWHERE may shrink to {fewer}"


def test_a_loop_beside_the_supervisor_is_found() -> None:
    sources = {
        "raybroker/broker/a.py": "import asyncio\nasyncio.get_running_loop().create_task(work())\n",
        "raybroker/broker/b.py": "from threading import Thread\nclass Mine(Thread):\n    pass\n",
        "raybroker/bench/c.py": "import threading\nthreading.Thread(target=work)\n",
        SUPERVISION: "import threading\nthreading.Thread(target=work)\n",
    }
    assert started(sources) == {"raybroker/broker/a.py": 1, "raybroker/broker/b.py": 1}
