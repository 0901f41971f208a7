"""Hosts whose log has copies, as actors: one leads and serves, it is killed, and another one serves the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raybroker.config import Config
from raybroker.model.settings.settings import destination_attributes

WAIT_S = 60.0


def until(true: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + WAIT_S
    while True:
        try:
            found = true()
        except Exception as error:  # noqa: BLE001 - a process that is being started again
            found, what = None, f"{what}: {error}"[:2000]
        if found:
            return found
        assert time.monotonic() < end, f"not within {WAIT_S} s: {what}"
        time.sleep(0.1)


@pytest.fixture
def hosts(own_ray: str, tmp_path: Path) -> Any:
    import ray

    from raybroker.actors.hosts.copy_host import CopyHost
    from raybroker.actors.hosts.host_spec import HostSpec

    ray.init(address=own_ray, ignore_reinit_error=True, log_to_driver=False)
    actor = ray.remote(CopyHost)
    made: list[Any] = []
    for number in range(3):
        directory = tmp_path / f"node{number}" / "broker" / "hosts" / "h1"
        directory.parent.mkdir(parents=True)
        spec = HostSpec("c", "b", "h1", "shared", str(directory), b"the token of the cluster", Config.from_values({}))
        made.append(actor.options(num_cpus=0, max_restarts=-1, max_task_retries=0).remote(spec, f"node{number}"))
    yield made
    for one in made:
        ray.kill(one)


def test_a_killed_leader_is_followed_by_a_copy_that_serves_what_it_had(hosts: Any) -> None:
    import ray

    def tell() -> list[tuple[str, str, int]]:
        begun = ray.get([host.copy_place.remote() for host in hosts], timeout=WAIT_S)
        for host in hosts:
            ray.get(host.know.remote({id_: (ip, port) for id_, ip, port in begun}), timeout=WAIT_S)
        return list(begun)

    ids = [id_ for id_, _, _ in tell()]
    for host in hosts:
        ray.get(host.found.remote(ids, 0), timeout=WAIT_S)
    with pytest.raises(Exception, match="waits to lead"):
        ray.get(hosts[0].where.remote(), timeout=WAIT_S)
    ray.get(hosts[0].lead.remote(), timeout=WAIT_S)
    until(lambda: ray.get(hosts[0].where.remote(), timeout=WAIT_S), "the first host serves")
    attributes = destination_attributes().as_dict("queue")
    ray.get(hosts[0].call_role.remote("destinations", "create", "queue", "orders", attributes, False), timeout=WAIT_S)
    held = ray.get(hosts[0].held.remote(), timeout=WAIT_S)
    assert held["role"] == "LEADER"
    assert held["released"] == held["index"] > 1
    ray.kill(hosts[0], no_restart=False)
    until(lambda: [id_ for id_, _, _ in tell()] == ids, "the killed process is a copy again, the same one")

    def leads() -> bool:
        ray.get(hosts[1].lead.remote(), timeout=WAIT_S)
        time.sleep(0.5)
        return bool(ray.get(hosts[1].held.remote(), timeout=WAIT_S)["role"] == "LEADER")

    until(leads, "the second host leads")
    until(lambda: ray.get(hosts[1].where.remote(), timeout=WAIT_S), "the second host serves")
    rows = ray.get(hosts[1].call_role.remote("destinations", "destination_rows"), timeout=WAIT_S)
    assert any("orders" in str(row) for row in rows)
    status = until(
        lambda: (
            (row := ray.get(hosts[1].held.remote(), timeout=WAIT_S))
            and all(one["behind"] == 0 for one in row["copies"])
            and row
        ),
        "all copies have it",
    )
    assert status["term"] >= 2
    assert sorted(one["copy"] for one in status["copies"]) == sorted(ids)
    until(lambda: ray.get(hosts[0].held.remote(), timeout=WAIT_S)["leader"] == ids[1], "the first one follows")
