"""What is used of Ray beside its documentation is there, and is what it was; without a cluster."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray._private import services, worker
from ray.exceptions import RpcError
from ray.experimental import internal_kv

from raybroker.actors import ray_inside, runtime


def test_ray_has_what_is_leaned_on() -> None:
    assert list(inspect.signature(services.get_ray_address_from_environment).parameters) == ["addr", "temp_dir"]
    assert callable(ray._raylet.Config.initialize), "reads the environment again"
    assert callable(ray._raylet.GcsClient), "is refused at once where the token is wrong"
    assert "gcs_client.get_all_node_info(" in inspect.getsource(services), "what a program waits for that connects"
    source = inspect.getsource(worker)
    assert "def print_to_stdstream(data, ignore_prefix: bool):" in source
    assert "print_to_stdstream" in source.partition("def connect(")[2], "it is looked up when a program connects"
    assert isinstance(worker._worker_logs_enabled, bool)
    for call, words in (
        (internal_kv._internal_kv_put, {"key", "value", "overwrite", "namespace"}),
        (internal_kv._internal_kv_get, {"key", "namespace"}),
        (internal_kv._internal_kv_del, {"key", "namespace"}),
        (internal_kv._internal_kv_list, {"prefix", "namespace"}),
    ):
        assert words <= set(inspect.signature(call).parameters)


def test_what_actors_print_is_narrowed(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(worker, "print_to_stdstream", lambda data, *more, **named: shown.append((data, more, named)))
    ray_inside.narrow_output(lambda data: None if data["lines"] == ["no"] else {"lines": data["lines"] + ["!"]})
    worker.print_to_stdstream({"lines": ["no"]}, 1)
    worker.print_to_stdstream({"lines": ["yes"]}, 1, ignore_prefix=True)
    assert shown == [({"lines": ["yes", "!"]}, (1,), {"ignore_prefix": True})]


@pytest.mark.parametrize(
    ("nodes", "known"),
    [
        (lambda timeout: {}, False),
        (lambda timeout: {"node": "row"}, True),
        (None, True),
    ],
)
def test_a_ray_takes_programs_once_it_has_a_node(monkeypatch: pytest.MonkeyPatch, nodes: Any, known: bool) -> None:
    """A Ray that does not say is asked by connecting to it."""
    client = SimpleNamespace() if nodes is None else SimpleNamespace(get_all_node_info=nodes)
    monkeypatch.setattr(ray._raylet, "GcsClient", lambda address: client)
    assert ray_inside.has_node("127.0.0.1:1") is known
    assert runtime.takes_programs("127.0.0.1:1") is known


def test_a_ray_that_refuses_to_answer_is_connected_to_which_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: str) -> None:
        raise RpcError("not let in")

    monkeypatch.setattr(ray._raylet, "GcsClient", refuse)
    assert runtime.takes_programs("127.0.0.1:1")
