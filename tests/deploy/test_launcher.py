"""The files for Ray's cluster launcher: Ray accepts them, and what they run is understood and at hand."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from raybroker.config import Config
from raybroker.config.brokers import plan_of
from tests.cluster.rays import ROOT
from tests.deploy.commands import DEPLOY, comment_commands, expanded, faults, simple_commands
from tests.deploy.test_config import ENVIRONMENT, unknown_to_ray

LAUNCHER = DEPLOY / "launcher"
FILES = sorted(LAUNCHER.glob("*.yaml"))
GIVEN = {"RAY_HEAD_IP": "192.0.2.10"}
"""What the launcher sets for the commands."""
LISTS = (
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
)
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def prepared(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with Ray's defaults; raises what Ray's launcher would."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    found: dict[str, Any] = prepare_config(copy.deepcopy(config))
    validate_config(found)
    return found


def lines(config: dict[str, Any]) -> Iterator[str]:
    for name in LISTS:
        yield from config.get(name, [])


def exported(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^export (\w+)=(\S+)$", path.read_text(), re.MULTILINE))


def test_there_is_one_for_own_machines_and_one_for_a_cloud() -> None:
    assert {path.stem: read(path)["provider"]["type"] for path in FILES} == {"local": "local", "aws": "aws"}


@each_file
def test_ray_accepts_the_file(path: Path) -> None:
    assert prepared(read(path))["head_node_type"] in {"head", "local.cluster.node"}


@each_file
def test_ray_finds_a_misspelled_name(path: Path) -> None:
    wrong = {**read(path), "setup_comands": []}
    with pytest.raises(Exception, match="setup_comands"):
        prepared(wrong)


@each_file
def test_ray_and_raybroker_understand_every_command(path: Path) -> None:
    config = read(path)
    shown = list(comment_commands(path.read_text()))
    assert [fault for line in [*lines(config), *shown] for fault in faults(line, GIVEN)] == []
    ran = [words for line in shown for words in simple_commands(line) if words[:2] == ["ray", "exec"]]
    assert [fault for words in ran for fault in faults(words[3])] == []
    assert [words[2] for words in ran] == [path.relative_to(ROOT).as_posix()] * 2
    assert "raybroker up" in ran[0][3]


@each_file
def test_every_ray_has_the_token_before_it_starts(path: Path) -> None:
    config = read(path)
    started = [line for line in lines(config) if "ray start" in line]
    assert len(started) == 2
    assert all(line.startswith(". ~/raybroker/env;") for line in started)
    variables = exported(LAUNCHER / "env")
    assert variables["RAY_AUTH_MODE"] == "token"
    mounted = config["file_mounts"]
    assert variables["RAY_AUTH_TOKEN_PATH"].rpartition("/")[0] in mounted
    assert f"chmod 600 {variables['RAY_AUTH_TOKEN_PATH']}" in config["setup_commands"]


@each_file
def test_what_commands_use_is_brought_along_or_made(path: Path) -> None:
    config = read(path)
    mounts = config["file_mounts"]
    assert [source for source in mounts.values() if source != "dist" and not (ROOT / source).is_file()] == []
    made = {"~/raybroker/venv", "~/raybroker/redis", "~/raybroker/stores"}
    text = "\n".join([*lines(config), *comment_commands(path.read_text()), *exported(LAUNCHER / "env").values()])
    used = {found.rstrip("/") for found in re.findall(r"~/raybroker/[\w.-]+", text)}
    assert used - set(mounts) - made == set()


@each_file
def test_there_is_a_node_for_every_broker(path: Path) -> None:
    config = read(path)
    plan = plan_of(Config.load(cluster_file=ROOT / config["file_mounts"]["~/raybroker/cluster.toml"], environ={}))
    assert broker_nodes(prepared(config)) == len(plan.names)


def broker_nodes(config: dict[str, Any]) -> int:
    """Nodes with the resource "broker", from the types' resources or the workers' own command."""
    kinds = config["available_node_types"]
    declared = sum(kind.get("min_workers", 0) for kind in kinds.values() if kind["resources"].get("broker") == 1)
    for line in config["worker_start_ray_commands"]:
        for words in simple_commands(line):
            options = [word for word in expanded(words, GIVEN) if word.startswith("--resources=")]
            if options and json.loads(options[0].partition("=")[2]) == {"broker": 1}:
                return int(declared + kinds[config["head_node_type"]]["min_workers"])
    return int(declared)


@each_file
def test_the_head_remembers_what_it_knew_when_it_restarts(path: Path) -> None:
    head = next(line for line in read(path)["head_start_ray_commands"] if "ray start" in line)
    port = re.search(r"^port (\d+)$", (LAUNCHER / "redis.conf").read_text(), re.MULTILINE)
    assert port
    assert f"RAY_REDIS_ADDRESS=127.0.0.1:{port[1]} " in head
    assert "--autoscaling-config=~/ray_bootstrap_config.yaml" in head


def test_the_launchers_environment_agrees_with_the_environment_file() -> None:
    variables = exported(LAUNCHER / "env")
    Config.load(environ=variables)
    places = {"RAY_AUTH_TOKEN_PATH", "RAYBROKER_STORE__DIR", "PATH"}
    assert {name for name in variables if variables[name] != ENVIRONMENT.get(name)} == places
    assert unknown_to_ray(variables) == []


def test_stores_on_aws_outlive_their_machine() -> None:
    broker = read(LAUNCHER / "aws.yaml")["available_node_types"]["broker"]["node_config"]
    assert [device["Ebs"]["DeleteOnTermination"] for device in broker["BlockDeviceMappings"]] == [False]
    assert "InstanceMarketOptions" not in broker
