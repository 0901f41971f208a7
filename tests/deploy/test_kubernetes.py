"""The manifests for Kubernetes have the form of their kinds, lead somewhere, and agree with their cluster file."""

from __future__ import annotations

import copy
import json
import os
import re
import shlex
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from raybroker.actors.cluster import OPEN_WAIT_S
from raybroker.config import Config
from raybroker.config.brokers import BrokerPlan, plan_of
from raybroker.services.metrics.metrics_http import PROBES
from tests.deploy.commands import DEPLOY, comment_commands, faults, parse
from tests.deploy.kubernetes import form_faults, reference_faults
from tests.deploy.test_config import unknown_to_ray

FOLDER = DEPLOY / "kubernetes"
CRD = os.environ.get("KUBERAY_CRD")
"""A file with KubeRay's own description, ray-operator/config/crd/bases/ray.io_rayclusters.yaml of its repository."""
JOIN_S = 20.0

Things = list[dict[str, Any]]


def read() -> Things:
    files = sorted(FOLDER.glob("*.yaml"))
    return [thing for path in files for thing in yaml.safe_load_all(path.read_text(encoding="utf-8"))]


def one(things: Things, kind: str, name: str = "raybroker") -> dict[str, Any]:
    return next(thing for thing in things if (thing["kind"], thing["metadata"]["name"]) == (kind, name))


def promised_secrets() -> frozenset[tuple[str, str]]:
    """(name, key) of the secrets that the files tell the user to make."""
    text = "\n".join(path.read_text() for path in FOLDER.glob("*.yaml"))
    return frozenset(re.findall(r"kubectl create secret generic (\S+) --from-literal=(\w+)=", text))


def all_faults(things: Things) -> list[str]:
    return [fault for thing in things for fault in form_faults(thing)] or list(
        reference_faults(things, promised_secrets())
    )


def groups(things: Things) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = one(things, "RayCluster")["spec"]["workerGroupSpecs"]
    return found


def container(group: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = group["template"]["spec"]["containers"][0]
    return found


def config(things: Things, folder: Path) -> Config:
    """The cluster file inside the manifest."""
    path = folder / "cluster.toml"
    path.write_text(one(things, "ConfigMap")["data"]["cluster.toml"], encoding="utf-8")
    return Config.load(cluster_file=path, environ={})


def test_every_manifest_has_the_form_of_its_kind_and_leads_somewhere() -> None:
    assert all_faults(read()) == []


Edit = Callable[[Things], object]


def spec(things: Things, kind: str, name: str = "raybroker") -> Any:
    return one(things, kind, name)["spec"]


def drop(kind: str) -> Edit:
    def edit(things: Things) -> None:
        things[:] = [thing for thing in things if thing["kind"] != kind]

    return edit


WRONG: list[tuple[Edit, str]] = [
    (lambda things: spec(things, "RayCluster").update(rayVerison="2.60.0"), "rayVerison"),
    (lambda things: spec(things, "RayCluster").pop("authOptions"), "authOptions"),
    (lambda things: groups(things)[0].update(replicas="1"), "'1' is not of type 'integer'"),
    (lambda things: groups(things)[0].pop("minReplicas"), "minReplicas"),
    (lambda things: container(groups(things)[0]).update(image="raybroker"), "containers[0].image"),
    (lambda things: container(groups(things)[0])["env"][0].pop("value"), "env[0]"),
    (lambda things: container(groups(things)[1])["volumeMounts"].pop(), "b2: volume store is not mounted"),
    (lambda things: groups(things)[2]["template"]["spec"]["volumes"].pop(), "b3: mounts store, which is no volume"),
    (lambda things: spec(things, "Service")["selector"].update(a="b"), "selects no pod"),
    (lambda things: spec(things, "Service")["ports"][1].update(targetPort="metrix"), "a port named metrix"),
    (lambda things: spec(things, "NetworkPolicy")["ingress"][0].pop("from"), "'from' is a required property"),
    (lambda things: spec(things, "StatefulSet", "raybroker-redis").update(serviceName="x"), "there is no service x"),
    (
        lambda things: spec(things, "PersistentVolumeClaim", "raybroker-b1")["resources"].update(
            requests={"storage": "64"}
        ),
        "'64' does not match",
    ),
    (
        lambda things: spec(things, "RayCluster")["gcsFaultToleranceOptions"]["redisPassword"]["valueFrom"][
            "secretKeyRef"
        ].update(key="passwd"),
        "'passwd'",
    ),
    (drop("PersistentVolumeClaim"), "there is no such PersistentVolumeClaim"),
    (drop("ConfigMap"), "there is no such ConfigMap"),
]


@pytest.mark.parametrize(("edit", "fault"), WRONG, ids=[fault for _, fault in WRONG])
def test_what_is_wrong_in_a_manifest_is_found(edit: Edit, fault: str) -> None:
    things = copy.deepcopy(read())
    edit(things)
    found = [*all_faults(things), *redis_faults(things)]
    assert any(fault in line for line in found), found


def redis_faults(things: Things) -> list[str]:
    """The head and Redis have to mean the same password."""
    options = spec(things, "RayCluster")["gcsFaultToleranceOptions"]
    wanted = options["redisPassword"]["valueFrom"]["secretKeyRef"]
    server = spec(things, "StatefulSet", "raybroker-redis")["template"]["spec"]["containers"][0]
    made = server["env"][0]["valueFrom"]["secretKeyRef"]
    return [] if wanted == made else [f"{wanted} is not {made}"]


def test_the_head_finds_redis_which_has_written_what_it_confirms() -> None:
    things = read()
    assert redis_faults(things) == []
    host, _, port = spec(things, "RayCluster")["gcsFaultToleranceOptions"]["redisAddress"].partition(":")
    assert [row["port"] for row in spec(things, "Service", host)["ports"]] == [int(port)]
    server = spec(things, "StatefulSet", "raybroker-redis")["template"]["spec"]["containers"][0]
    said = list(zip(server["args"], server["args"][1:], strict=False))
    assert ("--appendfsync", "always") in said
    assert ("--dir", server["volumeMounts"][0]["mountPath"]) in said
    assert ("--requirepass", f"$({server['env'][0]['name']})") in said


def test_every_broker_has_a_group_of_one_pod_with_a_store_of_its_own(tmp_path: Path) -> None:
    things = read()
    plan = plan_of(config(things, tmp_path))
    assert plan == BrokerPlan({"b1": "b1", "b2": "b2", "b3": "b3"}, "b1")
    claims = set()
    for group, broker in zip(groups(things), plan.names, strict=True):
        assert (group["groupName"], group["replicas"], group["minReplicas"], group["maxReplicas"]) == (broker, 1, 1, 1)
        assert group["rayStartParams"]["node-name"] == plan.brokers[broker]
        assert {"name": "BROKER", "value": broker} in container(group)["env"]
        assert unknown_to_ray({row["name"]: "" for row in container(group)["env"]}) == []
        volumes = {volume["name"]: volume for volume in group["template"]["spec"]["volumes"]}
        claims.add(volumes["store"]["persistentVolumeClaim"]["claimName"])
        assert mount(group, "store") == "/var/lib/raybroker"
        assert mount(group, "config") == "/etc/raybroker"
    assert len(claims) == len(plan.names)


def mount(group: dict[str, Any], volume: str) -> str:
    return next(row["mountPath"] for row in container(group)["volumeMounts"] if row["name"] == volume)


def test_ray_understands_what_kuberay_starts_it_with() -> None:
    things = read()
    head = spec(things, "RayCluster")["headGroupSpec"]
    for group in [head, *groups(things)]:
        line = "ray start " + " ".join(f"--{name}={value}" for name, value in group["rayStartParams"].items())
        assert faults(line) == []
        if group is not head:
            (option,) = [word for word in shlex.split(line) if word.startswith("--resources=")]
            assert json.loads(option.partition("=")[2]) == {"broker": 1}


def test_raybroker_understands_what_the_pods_and_the_comments_run() -> None:
    lines = [container(group)["lifecycle"]["postStart"]["exec"]["command"] for group in groups(read())]
    assert all(line[:2] == ["/bin/bash", "-c"] for line in lines)
    assert [fault for line in lines for fault in faults(line[2], {"BROKER": "b1"})] == []
    shown = [line for path in FOLDER.glob("*.yaml") for line in comment_commands(path.read_text())]
    ours = [line.partition(" -- ")[2] for line in shown if " -- " in line]
    assert ours
    for line in ours:
        parse("raybroker", shlex.split(line)[1:])


def test_a_pod_tries_until_its_broker_is_up(tmp_path: Path) -> None:
    """The command of the pod with a ``raybroker`` that is refused twice, and a ``sleep`` that does not."""
    for name, script in {
        "raybroker": 'echo "$@" >>calls; [ "$(wc -l <calls)" -ge 3 ]',
        "sleep": 'echo slept "$@" >>slept',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{script}\n")
        (tmp_path / name).chmod(stat.S_IRWXU)
    line = container(groups(read())[1])["lifecycle"]["postStart"]["exec"]["command"][2]
    assert "/proc/1/fd/1" in line
    line = line.replace("/proc/1/fd/1", "log").removesuffix("&") + "; echo ended >>calls"
    subprocess.run(
        ["bash", "-c", line.replace("setsid", "setsid --wait")],
        cwd=tmp_path,
        check=True,
        timeout=JOIN_S,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "BROKER": "b2"},
    )
    call = "up --config /etc/raybroker/cluster.toml --broker b2\n"
    assert (tmp_path / "calls").read_text() == call * 3 + "ended\n"
    assert (tmp_path / "slept").read_text() == "slept 5\n" * 2


def test_the_pod_of_a_broker_lives_and_is_ready_as_its_broker_says(tmp_path: Path) -> None:
    config = one(read(), "ConfigMap")["data"]["cluster.toml"]
    (tmp_path / "cluster.toml").write_text(config)
    ports = Config.load(cluster_file=tmp_path / "cluster.toml")["raybroker.metrics.ports"]
    for group in groups(read()):
        broker = container(group)
        named = {row["name"]: row["containerPort"] for row in broker["ports"]}
        asked = {probe: broker[f"{probe}Probe"]["httpGet"] for probe in ("startup", "liveness", "readiness")}
        assert {probe: get["path"] for probe, get in asked.items()} == {
            "startup": "/health/live",
            "liveness": "/health/live",
            "readiness": "/health/ready",
        }
        assert {get["path"] for get in asked.values()} == PROBES
        assert {named[get["port"]] for get in asked.values()} == {ports.low} == {ports.high}
        start = broker["startupProbe"]
        assert start["periodSeconds"] * start["failureThreshold"] >= OPEN_WAIT_S


def test_the_service_shows_the_first_data_port(tmp_path: Path) -> None:
    things = read()
    ports = config(things, tmp_path)["raybroker.data.ports"]
    shown = {row["name"]: row["port"] for row in spec(things, "Service")["ports"]}
    assert shown["data"] == ports.low


def test_nobody_from_elsewhere_reaches_more_than_metrics_and_the_dashboard() -> None:
    for rule in spec(read(), "NetworkPolicy")["ingress"]:
        elsewhere = any("namespaceSelector" in peer for peer in rule["from"])
        assert not elsewhere or {row["port"] for row in rule["ports"]} <= {8080, 8265, 9464}


@pytest.mark.skipif(CRD is None, reason="KUBERAY_CRD does not name a file with KubeRay's description of a RayCluster")
def test_kuberays_own_description_agrees() -> None:
    assert CRD is not None
    versions = yaml.safe_load(Path(CRD).read_text(encoding="utf-8"))["spec"]["versions"]
    schema = next(version["schema"]["openAPIV3Schema"] for version in versions if version["name"] == "v1")
    cluster = one(read(), "RayCluster")
    assert list(jsonschema.Draft202012Validator(strict(schema)).iter_errors(cluster)) == []
    cluster["spec"]["workerGroupSpecs"][0]["groupname"] = "b1"
    assert list(jsonschema.Draft202012Validator(strict(schema)).iter_errors(cluster)) != []


def strict(schema: Any) -> Any:
    """The schema with unknown fields refused, as Kubernetes drops them, and its own kinds of values understood."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    found = {name: strict(value) for name, value in schema.items() if name != "format" or isinstance(value, dict)}
    if isinstance(schema.get("properties"), dict) and "x-kubernetes-preserve-unknown-fields" not in schema:
        found.setdefault("additionalProperties", False)
    if schema.get("type") == "object" and found.get("properties", {}).keys() >= {"apiVersion", "kind", "metadata"}:
        found["properties"]["metadata"] = {"type": "object"}
    return found
