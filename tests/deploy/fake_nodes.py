"""A cluster of several nodes on this machine, by Ray's own autoscaler: brokers are placed on them and carry messages.

    python -m tests.deploy.fake_nodes               two nodes of different types, two brokers
    python -m tests.deploy.fake_nodes --brokers 3   the third node is launched because it is asked for

The head gets an autoscaling configuration with three types of node that have the resource "broker", of which two are
kept at one node each; Ray's provider for tests starts nodes as processes.  Then ``raybroker up`` with a cluster file,
``send`` and ``receive``, as a user types them.  Everything has its own folder, ports and token and is ended at the end;
no other Ray of the machine is touched.  Prints one line of JSON a step.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from raybroker.cli.tools.ray_process import free_ports
from raybroker.config.places import answers
from tests.cluster.rays import OBJECT_STORE_BYTES, ROOT, end_all

HOST = "127.0.0.1"
NODES_MIN = 2
NODES_MAX = 3
START_S = 60.0
END_S = 10.0
COMMAND_S = 90.0
POLL_S = 0.1


class FailedError(Exception):
    """A step did not do what it has to do."""


def autoscaling(gcs_address: str) -> dict[str, Any]:
    """What ``ray start --autoscaling-config`` gets; without ``gcs_address`` the provider assumes port 6379."""
    resources = {"CPU": 1, "broker": 1, "object_store_memory": OBJECT_STORE_BYTES}
    kinds = {
        f"broker-{letter}": {
            "resources": resources,
            "node_config": {},
            "min_workers": int(place < NODES_MIN),
            "max_workers": 1,
        }
        for place, letter in enumerate("abc"[:NODES_MAX])
    }
    head = {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}
    return {
        "cluster_name": "raybroker-fake",
        "max_workers": NODES_MAX,
        "upscaling_speed": 10.0,
        "idle_timeout_minutes": 10,
        "available_node_types": {"ray.head.default": head, **kinds},
        "head_node_type": "ray.head.default",
        "provider": {"type": "fake_multinode", "gcs_address": gcs_address, "disable_node_updaters": True},
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        "initialization_commands": [],
        "setup_commands": [],
        "head_setup_commands": [],
        "worker_setup_commands": [],
        "head_start_ray_commands": [],
        "worker_start_ray_commands": [],
        "file_mounts_sync_continuously": False,
        "rsync_exclude": [],
        "rsync_filter": [],
    }


class Nodes:
    """A head whose autoscaler launches nodes, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = free_ports(5)
        self.address = f"{HOST}:{self.ports[0]}"
        token = folder / "token"
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "RAYBROKER_"))}
        self.environment = {
            **inherited,
            "RAY_TMPDIR": str(folder),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_ADDRESS": self.address,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), inherited.get("PYTHONPATH")))),
        }
        self._log = folder / "head.log"
        self._head: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the head and wait until it takes connections."""
        config = self.folder / "fake.yaml"
        config.write_text(yaml.safe_dump(autoscaling(self.address)), encoding="utf-8")
        port, client, agent, agent_grpc, runtime_env = self.ports
        with self._log.open("wb") as out:
            self._head = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    "from ray.scripts.scripts import main; main()",
                    "start",
                    "--head",
                    "--block",
                    f"--node-ip-address={HOST}",
                    f"--port={port}",
                    "--num-cpus=0",
                    f"--object-store-memory={OBJECT_STORE_BYTES}",
                    f"--autoscaling-config={config}",
                    "--include-dashboard=false",
                    *(_client_port(client)),
                    f"--dashboard-agent-listen-port={agent}",
                    f"--dashboard-agent-grpc-port={agent_grpc}",
                    f"--runtime-env-agent-port={runtime_env}",
                    "--disable-usage-stats",
                ],
                env={
                    **{k: v for k, v in self.environment.items() if k != "RAY_ADDRESS"},
                    # The second version of the autoscaler needs a file that Ray's packages do not contain.
                    "RAY_FAKE_CLUSTER": "1",
                    "RAY_enable_autoscaler_v2": "0",
                    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": "f" * 51 + "0" * 5,
                    # A launch is decided on at the autoscaler's next look.
                    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.wait(lambda: answers(self.address), "the head takes connections")

    def wait(self, condition: Any, what: str) -> Any:
        """The first true value of ``condition``; raises FailedError when there is none in time."""
        deadline = time.monotonic() + START_S
        while not (found := condition()):
            if self._head is not None and self._head.poll() is not None:
                end = self._log.read_text()[-2000:]
                raise FailedError(f"the head ended with status {self._head.returncode}:\n{end}")
            if time.monotonic() > deadline:
                raise FailedError(f"not within {START_S:g} s: {what}; logs: {self.logs()}")
            time.sleep(POLL_S)
        return found

    def logs(self) -> str:
        """The end of what the autoscaler wrote."""
        return "\n".join(path.read_text()[-1500:] for path in self.folder.glob("ray/session_latest/logs/monitor.*"))

    def raybroker(self, *arguments: str, stdin: str = "") -> str:
        """Standard output of a command of ours that has to succeed."""
        done = subprocess.run(
            [sys.executable, "-m", "raybroker", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=self.folder,
            timeout=COMMAND_S,
            check=False,
        )
        if done.returncode != 0:
            raise FailedError(f"raybroker {' '.join(arguments)}: exit code {done.returncode}\n{done.stderr}")
        return done.stdout

    def end(self) -> None:
        """End everything that works in the folder, which is all that was started here."""
        if self._head is not None:
            self._head.terminate()
            self._head.wait(END_S)
        end_all(self.folder, END_S)
        shutil.rmtree(self.folder, ignore_errors=True)


def _client_port(port: int) -> list[str]:
    try:
        import grpc  # noqa: F401 - only whether it is there: without it Ray refuses the option
    except ImportError:
        return []
    return [f"--ray-client-server-port={port}"]


@contextmanager
def running() -> Iterator[Nodes]:
    """A head of its own while the block runs; afterwards no process of it is left."""
    nodes = Nodes(Path(tempfile.mkdtemp(prefix="rbn")))  # short: socket paths have a limit of 107 bytes
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.end()


class View:
    """What Ray knows of the cluster, through a driver in this process."""

    def __init__(self, nodes: Nodes) -> None:
        os.environ.pop("RAY_ADDRESS", None)
        os.environ.update({k: v for k, v in nodes.environment.items() if k.startswith("RAY_")})
        import ray

        self._ray = ray
        ray.init(address=nodes.address, namespace="raybroker", log_to_driver=False, logging_level="ERROR")

    def brokers_nodes(self) -> dict[str, str]:
        """Node id → address and port of its manager, for the live nodes that may have a broker."""
        rows = [row for row in self._ray.nodes() if row["Alive"] and row["Resources"].get("broker")]
        return {row["NodeID"]: f"{row['NodeManagerAddress']}:{row['NodeManagerPort']}" for row in rows}

    def homes(self) -> dict[str, str]:
        """Broker → id of the node that it runs on."""
        from ray._private.state import actors

        prefix = "default/broker/"
        rows = [row for row in actors().values() if row["State"] == "ALIVE" and row["Name"].startswith(prefix)]
        return {row["Name"].removeprefix(prefix): row["Address"]["NodeID"] for row in rows}

    def ask_for(self, count: int) -> None:
        """Ask the autoscaler for so many nodes with a broker's place."""
        from ray.autoscaler.sdk import request_resources

        request_resources(bundles=[{"broker": 1}] * count)

    def close(self) -> None:
        self._ray.shutdown()


def cluster_file(folder: Path, brokers: int) -> Path:
    """A cluster file for so many brokers."""
    path = folder / "cluster.toml"
    names = ", ".join(f"b{number}" for number in range(1, brokers + 1))
    path.write_text(
        f'[imq.cluster]\nbrokerlist = "{names}"\nmasterbroker = "b1"\n\n'
        f'[raybroker.store]\ndir = "{folder / "stores"}"\nsegment_bytes = "1m"\n',
        encoding="utf-8",
    )
    return path


def carry(nodes: Nodes, count: int) -> None:
    """Messages through a queue that an administrator made, in order."""
    bodies = [f"message {number}" for number in range(count)]
    nodes.raybroker("send", "orders", "-", "--lines", stdin="\n".join(bodies) + "\n")
    received = nodes.raybroker("receive", "orders", "--count", str(count), "--json").splitlines()
    got = [json.loads(line)["body"] for line in received]
    if got != bodies:
        raise FailedError(f"sent {bodies}, received {got}")


def say(step: str, since: float, **facts: object) -> None:
    """One line of JSON."""
    print(json.dumps({"step": step, "s": round(time.monotonic() - since, 1), **facts}), flush=True)


def run(nodes: Nodes, brokers: int) -> None:
    """All steps, once the head is up."""
    began = time.monotonic()
    view = View(nodes)
    try:
        nodes.wait(lambda: len(view.brokers_nodes()) >= NODES_MIN, f"{NODES_MIN} nodes")
        say("the autoscaler keeps its nodes", began, nodes=len(view.brokers_nodes()))
        if brokers > NODES_MIN:
            view.ask_for(brokers)
            nodes.wait(lambda: len(view.brokers_nodes()) >= brokers, f"{brokers} nodes")
            say("it launches one more", began, nodes=len(view.brokers_nodes()))
        config = cluster_file(nodes.folder, brokers)
        nodes.raybroker("up", "--config", str(config))
        homes = view.homes()
        wanted = [f"b{number}" for number in range(1, brokers + 1)]
        if (
            sorted(homes) != wanted
            or len(set(homes.values())) != brokers
            or set(homes.values()) - set(view.brokers_nodes())
        ):
            raise FailedError(f"brokers {wanted} are to have a node each of {sorted(view.brokers_nodes())}: {homes}")
        say("raybroker up: a broker a node", began, brokers=wanted)
        nodes.raybroker("up", "--config", str(config))
        if view.homes() != homes:
            raise FailedError(f"a second `raybroker up` moved brokers: {homes}, then {view.homes()}")
        rows: list[Mapping[str, Any]] = json.loads(nodes.raybroker("list", "bkr", "--json"))
        if [row["broker"] for row in rows] != wanted:
            raise FailedError(f"raybroker list bkr shows {rows}")
        say("a second one changes nothing", began)
        nodes.raybroker("create", "dst", "-t", "q", "-n", "orders")
        carry(nodes, 10)
        say("send, receive", began, messages=10)
        nodes.raybroker("down")
        if view.homes():
            raise FailedError(f"raybroker down left {view.homes()}")
        say("raybroker down", began)
    finally:
        view.close()


def main() -> int:
    """The command line; 0 when every step did what it has to do."""
    parser = argparse.ArgumentParser(prog="python -m tests.deploy.fake_nodes", description="See the module.")
    parser.add_argument("--brokers", type=int, default=NODES_MIN, choices=range(1, NODES_MAX + 1))
    chosen = parser.parse_args()
    began = time.monotonic()
    try:
        with running() as nodes:
            say("the head is up", began, folder=str(nodes.folder))
            run(nodes, chosen.brokers)
    except FailedError as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    say("everything is ended", began)
    return 0


if __name__ == "__main__":
    sys.exit(main())
