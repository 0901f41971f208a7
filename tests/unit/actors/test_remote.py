"""A host in another process: each method of the port is one call of the actor."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.actors import runtime
from raybroker.actors.hosts.remote import RemoteHost
from raybroker.hosting.host_port import HOST_METHODS


def test_every_method_of_the_port_asks_the_actor(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    async def call(method: Any, *args: Any, **options: Any) -> str:
        asked.append((method, *args))
        return "answer"

    monkeypatch.setattr(runtime, "call", call)
    spec: Any = SimpleNamespace(key="b1/h1", hosting="shared")
    host = RemoteHost(SimpleNamespace(ask="ask", state="state", where="where"), spec)
    for name in sorted(HOST_METHODS - {"state"}):
        assert asyncio.run(getattr(host, name)("queue", "orders")) == "answer"
        assert asked.pop() == ("ask", name, "queue", "orders")
    assert (asyncio.run(host.state()), asked) == ("answer", [("state",)])
    assert (host.key, host.hosting) == ("b1/h1", "shared")


def test_what_is_no_method_of_the_port_is_none_of_the_host() -> None:
    with pytest.raises(AttributeError, match="no method 'explode'"):
        _ = RemoteHost(SimpleNamespace(), SimpleNamespace()).explode  # type: ignore[arg-type]
