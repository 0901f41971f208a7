"""The command line over a loopback: the whole program but for Ray."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import raybroker as rb
from raybroker.cli import connecting
from tests import program


class Kept:
    """A connection that stays when a command closes it; what the command opened on it goes."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._before: list[Any] = []
        self.asked: list[str] = []
        self.asked_of: str | None = None
        """The broker that the latest command named."""

    def connect(self, cluster: str, broker: str | None = None) -> Kept:
        """Stands in for ``connecting.connect``."""
        self.asked.append(cluster)
        self.asked_of = broker
        self._before = list(self._connection._sessions)
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def close(self) -> None:
        for session in list(self._connection._sessions):
            if session not in self._before:
                session.close()


class Program:
    """Runs commands as ``raybroker …`` would."""

    def __call__(self, *arguments: str, stdin: str | bytes | None = None) -> program.Done:
        return program.invoke(*arguments, stdin=stdin)

    def output(self, *arguments: str, stdin: str | bytes | None = None) -> str:
        """Standard output of a command that has to succeed."""
        result = self(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.output(*arguments, "--json"))


@pytest.fixture
def raybroker() -> Program:
    return Program()


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A loopback that every command connects to; the clusters that were asked for are in ``broker.asked``."""
    with rb.loopback() as connection:
        kept = Kept(connection)
        monkeypatch.setattr(connecting, "connect", kept.connect)
        yield kept


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception], None]:
    """Lets every command fail with an error when it connects."""

    def fail(error: Exception) -> None:
        def connect(cluster: str, broker: str | None = None) -> Any:
            raise error

        monkeypatch.setattr(connecting, "connect", connect)

    return fail
