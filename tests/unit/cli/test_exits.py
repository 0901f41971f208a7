"""Exit codes: 1 refused, 2 usage, 3 nobody there; the reason is on standard error and nothing on standard output."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.cli import output
from raybroker.cli.exits import Exit, code_of
from raybroker.model.errors import BY_CODE, BrokerError

UNREACHABLE = {"no_cluster", "connection_lost", "broker_gone", "timeout"}


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_every_error_has_a_code(code: str) -> None:
    expected = Exit.UNREACHABLE if code in UNREACHABLE else Exit.REFUSED
    assert code_of(BY_CODE[code]("why")) is expected


@pytest.mark.parametrize("code", sorted(BY_CODE))
@pytest.mark.parametrize("command", [("list", "dst"), ("create", "dst", "-n", "a"), ("send", "a", "b"), ("top",)])
def test_every_error_is_said_and_ends_the_command(raybroker: Any, failing: Any, code: str, command: tuple) -> None:
    failing(BY_CODE[code]("the reason"))
    result = raybroker(*command)
    assert result.exit_code == (3 if code in UNREACHABLE else 1)
    assert (result.stdout, result.stderr) == ("", "raybroker: the reason\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "dst", "-n", "mq.sys.dmq"),
        ("create", "dst", "-n", "a", "-o", "template=missing"),
        ("create", "tpl", "-n", "a", "-o", "template=b"),
        ("update", "tpl", "-n", "missing", "-o", "maxNumMsgs=1"),
        ("destroy", "tpl", "-f", "-n", "missing"),
        ("destroy", "dst", "-f", "-n", "mq.sys.dmq"),
        ("pause", "dst", "-n", "mq.sys.dmq"),
        ("pause", "dst", "-n", "missing"),
        ("resume", "dst", "-n", "missing"),
        ("list", "dur", "-d", "missing"),
        ("purge", "dur", "-f", "-n", "missing"),
        ("destroy", "dur", "-f", "-n", "missing", "-c", "x"),
        ("query", "txn", "-n", "5"),
        ("commit", "txn", "-f", "-n", "5"),
        ("rollback", "txn", "-f", "-n", "host:5"),
        ("list", "msg", "-n", "missing"),
        ("list", "msg", "-n", "mq.sys.dmq", "-s", "price >"),
        ("delete", "msg", "-f", "-n", "missing", "--all"),
        ("move", "msg", "-n", "mq.sys.dmq", "--to", "missing", "--all"),
        ("move", "msg", "-n", "mq.sys.dmq", "--to", "mq.sys.dmq", "--all"),
        ("retry", "msg", "-n", "missing"),
        ("query", "dst", "-n", "missing"),
        ("update", "dst", "-n", "missing", "-o", "maxNumMsgs=1"),
        ("destroy", "dst", "-f", "-n", "missing"),
        ("purge", "dst", "-f", "-n", "missing"),
        ("query", "con", "-n", "999"),
    ],
)
def test_what_the_broker_refuses_is_code_1(raybroker: Any, broker: Any, arguments: tuple[str, ...]) -> None:
    result = raybroker(*arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("raybroker: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("frobnicate",),
        ("list", "queues"),
        ("receive", "bad name"),
        ("update", "dst", "-n", "a", "-o", "nothing=1"),
        ("destroy", "dst", "-n", "a"),
        ("purge", "dst", "-n", "a"),
        ("send", "a", "-"),
        ("send", "a"),
        ("create", "dst", "-n", "a", "--if-exists", "no"),
        ("send", "bad name", "x"),
        ("create", "dst", "-n", "a", "-t", "t", "-o", "maxNumActiveConsumers=1"),
        ("create", "dst", "-n", "a", "-o", "consumerFlowLimit=many"),
        ("create", "dst", "-n", "a", "-o", "consumerFlowLimits=20"),
        ("create", "dst", "-n", "bad name"),
        ("create", "queue", "-n", "a"),
        ("create", "dst"),
        ("create", "dst", "-n", "a", "-t", "x"),
        ("create", "dst", "-n", "a", "-o", "consumerFlowLimit"),
        ("create", "dst", "-n", "a", "-o", "=20"),
        ("create", "dst", "-n", "a", "-o", "maxNumMsgs=1", "-o", "maxNumMsgs=2"),
        ("update", "dst", "-n", "a"),
        ("query", "con", "-n", "first"),
        ("pause", "dst", "-pst", "EVERYTHING"),
        ("pause", "dst", "-n", "a", "--until", "10"),
        ("pause", "dst", "-n", "a", "--until", "2001-01-01"),
        ("pause", "dst", "-n", "a", "--until", "0s"),
        ("resume", "dst", "-t", "x"),
        ("update", "tpl", "-n", "a"),
        ("purge", "dur"),
        ("commit", "txn"),
        ("list", "msg"),
        ("list", "msg", "-n", "a", "--max", "-1"),
        ("delete", "msg", "-n", "a"),
        ("delete", "msg", "-n", "a", "--all", "--id", "ID:1"),
        ("move", "msg", "-n", "a", "--all"),
        ("move", "msg", "-n", "a", "--to", "b"),
        ("export", "msg", "-n", "a"),
        ("export", "msg", "-n", "a", "missing/file"),
        ("import", "msg", "-n", "a", "missing.msgs"),
        ("delete", "dst", "-n", "a"),
        ("send", "a", "b", "-t", "x"),
        ("send", "a", "b", "--ttl", "10"),
        ("send", "a", "b", "--delay", "soon"),
        ("send", "a", "b", "--priority", "10"),
        ("receive", "a", "-t", "t", "--browse"),
        ("receive", "a", "--browse", "--timeout", "1"),
        ("send",),
        ("send", "a", "b", "--property", "k"),
        ("send", "a", "{", "--body-type", "json"),
        ("send", "a", "{", "--type", "json"),
        ("up", "-port", "7676"),
        ("update", "bkr", "-o", "imq.no.such=1"),
        ("update", "bkr", "-o", "imq.log.level=LOUD"),
        ("query", "svc", "-n", "nosuch"),
        ("send", "a", "b", "--count", "0"),
        ("receive", "a", "--timeout", "-1"),
        ("up", "-D", "imq.message.max_sizes=1"),
        ("up", "-D", "nonsense"),
        ("up", "--name", "two words"),
        ("up", "--config", "missing.toml"),
        ("down", "--name", "two words"),
        ("bench", "--size", "3"),
        ("bench", "--producers", "0", "--consumers", "0"),
        ("demo", "--rows", "0"),
        ("verify", "--faults", "kill-everything"),
        ("verify", "--duration", "0"),
        ("verify", "-o", "nonsense"),
    ],
)
def test_what_cannot_be_right_is_code_2_before_anybody_is_asked(
    raybroker: Any, failing: Any, arguments: tuple[str, ...]
) -> None:
    failing(AssertionError("a cluster was asked"))
    result = raybroker(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr


def test_ctrl_c_is_130(raybroker: Any, failing: Any) -> None:
    failing(KeyboardInterrupt())  # type: ignore[arg-type]
    result = raybroker("list", "dst")
    assert (result.exit_code, result.stderr) == (130, "raybroker: interrupted\n")


def test_an_error_that_is_none_of_the_broker_s_is_not_hidden(raybroker: Any, failing: Any) -> None:
    failing(ZeroDivisionError())
    assert isinstance(raybroker("list", "dst").exception, ZeroDivisionError)
    assert not issubclass(ZeroDivisionError, BrokerError)


def test_errors_are_objects_for_the_command_with_json_alone(raybroker: Any, failing: Any) -> None:
    failing(BY_CODE["no_cluster"]("the reason"))
    assert raybroker("list", "dst", "--json").stderr.startswith('{"error": "the reason"')
    assert not output.objects.get()
