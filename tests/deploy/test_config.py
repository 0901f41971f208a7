"""The sample cluster files and the environment file say what they mean to say, to raybroker, to Ray and to Redis."""

from __future__ import annotations

import mmap
import re
import shlex
import shutil
import socket
import subprocess
import tomllib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from raybroker.config import Config
from raybroker.config.brokers import BrokerPlan, plan_of
from tests.cluster.rays import ROOT
from tests.deploy.commands import DEPLOY, environment, expanded, faults, parse

CONFIG = DEPLOY / "config"
ENVIRONMENT = environment(CONFIG / "raybroker.env")
REDIS_S = 10.0


def load(name: str) -> Config:
    return Config.load(cluster_file=CONFIG / name, environ={})


def redis_settings(path: Path) -> dict[str, str]:
    """Directive → value of a Redis configuration."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {name: value for name, _, value in (line.partition(" ") for line in lines)}


def ray_knows(name: str) -> bool:
    """Whether Ray's own programs contain a setting of that name: what they do not know they ignore without a word."""
    import ray
    from ray._private import ray_constants

    if name.isupper():
        return hasattr(ray_constants, f"RAY_{name}")
    binaries = [Path(ray.__file__).parent / "core/src/ray/gcs/gcs_server", Path(ray.__file__).parent / "_raylet.so"]
    for binary in binaries:
        with binary.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(name.encode()) >= 0:
                return True
    return False


def unknown_to_ray(variables: Mapping[str, str]) -> list[str]:
    """Variables meant for Ray that are neither its settings nor those that its documentation has beside them."""
    others = {
        "RAY_ADDRESS",
        "RAY_AUTH_MODE",
        "RAY_AUTH_TOKEN_PATH",
        "RAY_TMPDIR",
        "RAY_USAGE_STATS_ENABLED",
    }
    names = sorted(name for name in variables if name.startswith("RAY_") and name not in others)
    return [name for name in names if not ray_knows(name.removeprefix("RAY_"))]


def port_ranges(options: list[str]) -> list[range]:
    """The ports that options of ``ray start`` take, the workers' as one range."""
    given = dict(option.removeprefix("--").split("=") for option in options)
    workers = range(int(given.pop("min-worker-port")), int(given.pop("max-worker-port")) + 1)
    return [*(range(int(port), int(port) + 1) for port in given.values()), workers]


def overlaps(ranges: list[range]) -> list[tuple[range, range]]:
    ordered = sorted(ranges, key=lambda ports: ports.start)
    return [(low, high) for low, high in pairwise(ordered) if high.start < low.stop]


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("single.toml", BrokerPlan({"b1": ""}, "b1")),
        ("cluster.toml", BrokerPlan({"b1": "", "b2": "", "b3": ""}, "b1")),
        ("development.toml", BrokerPlan({"b1": "", "b2": ""}, None)),
    ],
)
def test_the_sample_cluster_files_ask_for_the_brokers_they_say(name: str, plan: BrokerPlan) -> None:
    assert plan_of(load(name)) == plan


def test_every_sample_cluster_file_is_tested() -> None:
    assert sorted(path.name for path in CONFIG.glob("*.toml")) == ["cluster.toml", "development.toml", "single.toml"]


def test_the_environment_file_means_the_same_to_a_shell() -> None:
    script = f". {shlex.quote(str(CONFIG / 'raybroker.env'))}; env -0"
    done = subprocess.run(["bash", "-ac", script], capture_output=True, text=True, check=True, env={"PATH": "/bin"})
    shown = dict(entry.split("=", 1) for entry in done.stdout.rstrip("\0").split("\0"))
    assert {name: shown.get(name) for name in ENVIRONMENT} == ENVIRONMENT


def test_raybroker_knows_what_is_meant_for_it_in_the_environment_file() -> None:
    config = Config.load(cluster_file=CONFIG / "cluster.toml", environ=ENVIRONMENT)
    assert config["raybroker.store.dir"] == "/var/lib/raybroker"
    assert "RAYBROKER_STORE__DIR" in config.origin("raybroker.store.dir")


def test_head_nodes_and_programs_are_told_how_to_be_let_in() -> None:
    assert ENVIRONMENT["RAY_AUTH_MODE"] == "token"
    token = Path(ENVIRONMENT["RAY_AUTH_TOKEN_PATH"])
    assert token.is_absolute()
    assert token.parts[1] not in {"run", "tmp"}, "a token there is gone after a reboot"
    assert re.fullmatch(r"[\w.]+:6379", ENVIRONMENT["RAY_ADDRESS"])
    assert ENVIRONMENT["RAY_ADDRESS"].rpartition(":")[2] == ENVIRONMENT["HEAD_PORT"]


def test_ray_knows_the_settings_that_are_meant_for_it() -> None:
    assert unknown_to_ray(ENVIRONMENT) == []
    wrong = {"RAY_health_check_periods_ms": "", "RAY_GRACEFUL_SHUTDOWN": "", "RAY_ADDRES": ""}
    assert unknown_to_ray(wrong) == sorted(wrong)


def test_ports_are_understood_by_ray_and_do_not_collide() -> None:
    options = expanded(["$NODE_PORTS"], ENVIRONMENT)
    parse("ray", ["start", "--head", f"--port={ENVIRONMENT['HEAD_PORT']}", *options])
    data = load("cluster.toml")["raybroker.data.ports"]
    redis = int(redis_settings(CONFIG / "redis.conf")["port"])
    head = int(ENVIRONMENT["HEAD_PORT"])
    client = 10001
    ranges = [
        *port_ranges(options),
        *(range(port, port + 1) for port in (redis, head, client)),
        range(data.low, data.high + 1),
    ]
    assert overlaps(ranges) == []
    assert overlaps([*ranges, range(6000, 7000)]) != []
    single = sorted(ports.start for ports in port_ranges(options) if len(ports) == 1)
    text = (CONFIG / "raybroker.env").read_text()
    assert f"{single[0]}-{single[-1]}, {client} (head), " in text
    assert single == list(range(single[0], single[-1] + 1))


def test_the_room_for_data_sockets_is_the_same_everywhere() -> None:
    assert load("single.toml")["raybroker.data.ports"] == load("cluster.toml")["raybroker.data.ports"]


def test_the_node_resource_is_the_one_that_a_broker_takes() -> None:
    parse("ray", ["start", "--address=a:1", f"--resources={ENVIRONMENT['NODE_RESOURCES']}"])
    assert ENVIRONMENT["NODE_RESOURCES"] == '{"broker": 1}'


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("redis.conf")), ids=lambda path: path.parent.name)
def test_redis_has_written_what_it_confirms_and_listens_to_the_head_alone(path: Path) -> None:
    found = redis_settings(path)
    assert (found["appendonly"], found["appendfsync"], found["maxmemory-policy"]) == ("yes", "always", "noeviction")
    assert (found["bind"], found["protected-mode"]) == ("127.0.0.1", "yes")
    others = redis_settings(CONFIG / "redis.conf")
    assert {name for name in found if found[name] != others[name]} <= {"dir"}


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server here")
def test_redis_starts_with_its_configuration(tmp_path: Path) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    text = (CONFIG / "redis.conf").read_text()
    moved = tmp_path / "redis.conf"
    moved.write_text(text.replace("/var/lib/raybroker-redis", str(tmp_path)).replace("port 6390", f"port {port}"))
    server = subprocess.Popen(["redis-server", str(moved)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert server.stdout is not None
        said: list[str] = []
        while not said or "Ready to accept connections" not in said[-1]:
            line = server.stdout.readline()
            assert line, said
            said.append(line)
        with socket.create_connection(("127.0.0.1", port), timeout=REDIS_S) as client:
            client.sendall(b"CONFIG GET appendfsync\r\n")
            assert b"always" in client.recv(200)
    finally:
        server.kill()
        server.communicate()


def test_all_files_name_the_same_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = "\n".join(path.read_text() for path in sorted(DEPLOY.rglob("*")) if path.is_file())
    ray = {*re.findall(r"\bray(?:\[default\])?==([\d.]+)", text), *re.findall(r"rayVersion: ([\d.]+)", text)}
    assert len(ray) == 1
    server = project["optional-dependencies"]["server"]
    least = next(name.partition(">=")[2].partition(",")[0] for name in server if name.startswith("ray>="))
    assert [int(part) for part in ray.pop().split(".")] >= [int(part) for part in least.split(".")]
    assert set(re.findall(r"raybroker[:-](\d[\d.]*\d)", text)) == {project["version"]}


def test_the_guide_shows_commands_that_are_understood_and_files_that_are_there() -> None:
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    inline = [span for span in re.findall(r"`([^`\n]+)`", text) if "; " in span or " --" in span]
    shown = [line for block in blocks for line in block.splitlines()] + inline
    assert [span for span in inline if "raybroker up --config" in span or "raybroker list bkr" in span]
    assert [fault for line in shown for fault in faults(line)] == []
    named = {name for line in shown for name in re.findall(r"\bdeploy/[\w./*@-]+\w", line)}
    assert named
    assert [name for name in named if not list(ROOT.glob(name))] == []
