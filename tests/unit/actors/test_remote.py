"""A host in another process: each method of the port is one call of the actor."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.actors import runtime
from raybroker.actors.hosts.remote import RemoteHost
from raybroker.hosting.host_port import ROLES, method_of


def test_every_method_of_the_port_asks_the_actor(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    async def call(method: Any, *args: Any, **options: Any) -> str:
        asked.append((method, *args))
        return "answer"

    monkeypatch.setattr(runtime, "call", call)
    spec: Any = SimpleNamespace(key="b1/h1", hosting="shared")
    host = RemoteHost(SimpleNamespace(call_role="ask", where="where"), spec)
    for role, methods in ROLES.items():
        for name in sorted(methods):
            assert asyncio.run(getattr(getattr(host, role), name)("queue", "orders")) == "answer"
            assert asked.pop() == ("ask", role, name, "queue", "orders")
    assert (host.key, host.hosting) == ("b1/h1", "shared")


def test_what_is_no_method_of_the_port_is_none_of_the_host() -> None:
    host = RemoteHost(SimpleNamespace(), SimpleNamespace(key="b1/h1", hosting="shared"))  # type: ignore[arg-type]
    assert not hasattr(host.destinations, "explode")
    for role, method in (
        ("destinations", "explode"),
        ("explosives", "rows"),
        ("guests", "take_socket"),
        ("damaged", "_found"),
    ):
        with pytest.raises(AttributeError, match=f"no method {role}.{method}"):
            method_of(host, role, method)
