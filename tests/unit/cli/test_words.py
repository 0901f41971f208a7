"""Relations that hold for every command: how options are written, what texts say, what fits into a terminal."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import pytest

from raybroker.cli import output
from raybroker.cli.exits import UsageError, _with_known_dashes
from raybroker.errors import InvalidDestinationError
from tests import program
from tests.tidy.source import package, tree_of


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that is shown, by its words."""
    group = group if group is not None else program.commands()
    for name, found in group.commands.items():
        if hasattr(found, "commands"):
            yield from commands(found, (*path, name))
        elif not found.hidden:
            yield (*path, name), found


ALL = list(commands())


def options(command: Any) -> Iterator[tuple[str, Any]]:
    for parameter in command.params:
        for option in parameter.opts:
            if option.startswith("-"):
                yield option, parameter


def test_an_option_means_one_thing_in_all_commands() -> None:
    of_destination = {
        (path, parameter.metavar)
        for path, command in ALL
        for option, parameter in options(command)
        if option in ("-t", "--type") and path[0] != "objmgr"  # There it has MQ's types of administered objects.
    }
    assert {metavar for _, metavar in of_destination} == {"q|t"}
    assert len(of_destination) > 10


@pytest.mark.parametrize("path", [path for path, _ in ALL], ids=" ".join)
def test_an_option_of_several_letters_may_have_one_dash_or_two(path: tuple[str, ...]) -> None:
    (command,) = [found for words, found in ALL if words == path]
    known = {option for option, _ in options(command)}
    for option in known:
        word = option.lstrip("-")
        other = f"-{word}" if option.startswith("--") else f"--{word}"
        if len(word) < 2 or other in known:
            continue
        if option.startswith("--") and f"-{word[0]}" in known:
            with pytest.raises(UsageError, match=f"write {option}"):
                _with_known_dashes(command, [other, "x"])
        else:
            assert _with_known_dashes(command, [f"{other}=x", "--", other]) == [f"{option}=x", "--", other]


def test_a_word_behind_one_dash_says_what_was_meant(raybroker: Any, failing: Any) -> None:
    failing(AssertionError("a cluster was asked"))
    result = raybroker("up", "-port", "7676")
    assert result.exit_code == 2
    assert result.stderr == "raybroker: -port: write --port; -port would be -p with the value 'ort'\n"


def test_the_type_of_a_body_is_told_apart_from_that_of_a_destination(raybroker: Any, broker: Any) -> None:
    result = raybroker("send", "q", "{}", "--type", "json")
    assert (result.exit_code, "--body-type json" in result.stderr) == (2, True)
    raybroker.output("send", "news", "{}", "--type", "topic", "--body-type", "json")


@pytest.mark.parametrize("path", [(), *(path for path, _ in ALL)], ids=lambda path: " ".join(path) or "raybroker")
def test_a_help_is_whole_sentences(path: tuple[str, ...], raybroker: Any) -> None:
    text = raybroker.output(*path, "-h")
    assert not re.search(r": ?\.\s*$", text.strip()), text[-200:]
    assert text.strip(), path


def python_names() -> Iterator[str]:
    """Texts of errors in which a verb of Python is named."""
    for path, source in package().items():
        other = path.startswith(("raybroker/cli/", "raybroker/client/", "raybroker/bench/"))
        if not other and re.search(r"\b(?:list|query)_[a-z]", source):
            for node in ast.walk(tree_of(source)):
                if isinstance(node, ast.Raise) and node.exc is not None:
                    yield from re.findall(r"[^'\"]*\b(?:list|query)_[a-z]+[^'\"]*", ast.unparse(node.exc))


def test_no_error_of_a_command_names_a_verb_of_python() -> None:
    texts = list(python_names())
    assert len(texts) >= 4
    for text in texts:
        assert not re.search(r"\b(list|query)_[a-z]+", output.as_commands(text)), text


def test_an_unknown_transaction_is_told_in_words_of_the_command_line(raybroker: Any, failing: Any) -> None:
    failing(InvalidDestinationError("there is no transaction 7; list_transactions shows those there are"))
    result = raybroker("query", "txn", "-n", "7")
    assert result.stderr == "raybroker: there is no transaction 7; list txn shows those there are\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("query", "cxn", "-n", "nosuch"),
        ("destroy", "cxn", "-n", "nosuch", "-f"),
        ("query", "txn", "-n", "99"),
        ("query", "dst", "-n", "nosuch"),
        ("query", "con", "-n", "99"),
        ("query", "saf", "-n", "nosuch"),
        ("query", "svc", "-n", "jms"),
        ("pause", "bkr"),
    ],
    ids=" ".join,
)
def test_what_the_broker_does_not_know_is_code_1(raybroker: Any, broker: Any, arguments: tuple[str, ...]) -> None:
    result = raybroker(*arguments)
    assert (result.exit_code, result.stdout) == (1, ""), result.output


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("dead", [False, True])
def test_a_list_of_messages_shows_body_and_cause_in_a_narrow_terminal(width: int, dead: bool) -> None:
    from io import StringIO

    from rich.console import Console

    from raybroker.cli.objects.stored import COLUMNS, LESS

    row = {
        "id": "8c2d41f09ab3-1794013-42",
        "state": "waiting",
        "time": "2026-11-26 01:43:02",
        "priority": 4,
        "delivery_count": 3,
        "size": 123_456,
        "preview": "an order of seventeen blue umbrellas, x…",
        "why": "UNDELIVERABLE: ValueError: no such customer",
    }
    columns = {key: title for key, title in COLUMNS.items() if dead or key != "why"}
    left = output.fitting([row], columns, LESS, width)
    console = Console(width=width, file=StringIO())
    console.print(output.rich_table([row], left))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    assert "an order of" in text
    assert ("UNDELIVERABLE" in text) is dead
    assert list(left) == [key for key in columns if key in left]
    if width == 200:
        assert left == columns
