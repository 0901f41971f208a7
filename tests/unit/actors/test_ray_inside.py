"""What is used of Ray beside its documentation is there, and is what it was; without a cluster."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import ray
from ray._private import services, worker
from ray.experimental import internal_kv

from raybroker.actors import ray_inside


def test_ray_has_what_is_leaned_on() -> None:
    assert list(inspect.signature(services.get_ray_address_from_environment).parameters) == ["addr", "temp_dir"]
    assert callable(ray._raylet.Config.initialize), "reads the environment again"
    assert callable(ray._raylet.GcsClient), "is refused at once where the token is wrong"
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
