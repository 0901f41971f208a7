"""What people and scripts expect of a command line: questions, pipes, words for the same thing, help that is whole."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from raybroker.model.settings.settings import settings_of


def test_without_a_terminal_nothing_is_destroyed_unless_told_to(raybroker: Any, broker: Any) -> None:
    broker.session().producer("orders").send("kept")
    result = raybroker("destroy", "dst", "-n", "orders")
    assert result.exit_code == 2
    assert "--force" in result.stderr
    assert broker.admin().query_destination("queue", "orders")["messages"] == 1
    assert raybroker.output("destroy", "dst", "-n", "orders", "-f") == "destroyed queue orders\n"


def test_a_destination_that_is_there_is_refused_kept_or_updated(raybroker: Any, broker: Any) -> None:
    create = ("create", "dst", "-n", "orders", "-o")
    assert raybroker.output(*create, "maxNumMsgs=1") == "created queue orders\n"
    assert raybroker(*create, "maxNumMsgs=2").exit_code == 1
    assert raybroker.output(*create, "maxNumMsgs=3", "--idempotent") == "kept queue orders\n"
    assert raybroker.output(*create, "maxNumMsgs=4", "--if-exists", "keep") == "kept queue orders\n"
    assert broker.admin().query_destination("queue", "orders")["attributes"]["maxNumMsgs"] == 1
    assert raybroker.output(*create, "maxNumMsgs=5", "--if-exists", "update") == "updated queue orders\n"
    assert broker.admin().query_destination("queue", "orders")["attributes"]["maxNumMsgs"] == 5


@pytest.mark.parametrize("verb", ["create", "update"])
def test_the_help_lists_every_attribute_with_its_default_and_bounds(raybroker: Any, verb: str) -> None:
    text = raybroker.output(verb, "dst", "--help")
    for setting in settings_of("destination"):
        assert f"{setting.name} (default " in text
    assert "consumerFlowLimit (default 1000; " in text


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("list", "queues"), "dst"),
        (("list", "consumers"), "con"),
        (("query", "broker"), "bkr"),
        (("lst",), "list"),
        (("publish", "x"), "send"),
        (("list", "dsts"), "dst"),
    ],
)
def test_another_word_is_answered_with_the_right_one(raybroker: Any, words: tuple[str, ...], near: str) -> None:
    result = raybroker(*words)
    assert result.exit_code == 2
    assert f"did you mean {near}?" in result.stderr


def test_receiving_from_what_is_not_there_does_not_make_it(raybroker: Any, broker: Any) -> None:
    broker.session().producer("orders").send("x")
    result = raybroker("receive", "ordesr", "--timeout", "0")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "orders" in result.stderr
    assert [row["name"] for row in broker.admin().list_destinations()] == ["mq.sys.dmq", "orders"]
    assert raybroker("receive", "made", "--create", "--timeout", "0").exit_code == 1
    assert broker.admin().query_destination("queue", "made")["messages"] == 0
    assert raybroker.output("receive", "orders") == "x\n"


def test_empty_standard_input_is_no_message(raybroker: Any, broker: Any) -> None:
    assert raybroker("send", "orders", "-", stdin="").exit_code == 2
    assert raybroker.output("send", "orders", "-", "--lines", stdin="") == "sent 0 messages to orders\n"
    assert raybroker.output("send", "orders", "") == "sent 1 message to orders\n"
    assert broker.admin().query_destination("queue", "orders")["messages"] == 1


def test_bodies_of_other_types_are_shown(raybroker: Any, broker: Any) -> None:
    import datetime
    import decimal

    import numpy

    producer = broker.session().producer("orders")
    for body in ((1, 2), decimal.Decimal("1.50"), datetime.date(2024, 2, 29), numpy.arange(3), {"a": numpy.float32(2)}):
        producer.send(body)
    assert raybroker.output("receive", "orders", "--count", "5").splitlines() == [
        "[1, 2]",
        '"1.50"',
        '"2024-02-29"',
        "[0, 1, 2]",
        '{"a": 2.0}',
    ]


def test_a_reader_that_goes_away_is_no_failure() -> None:
    program = (
        "import sys\n"
        "from raybroker.cli.main import app\n"
        "from raybroker.cli import output, connecting\n"
        "from contextlib import contextmanager\n"
        "class Admin:\n"
        "    def list_destinations(self, *a, **k): return [{'name': 'q' * 200 + str(n)} for n in range(5000)]\n"
        "@contextmanager\n"
        "def administering(*a, **k): yield Admin()\n"
        "connecting.administering = administering\n"
        "app(['list', 'dst'], prog_name='raybroker')\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert (process.stderr.read(), process.wait(60)) == (b"", 0)
