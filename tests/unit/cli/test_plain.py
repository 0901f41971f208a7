"""Plain commands: made of the verbs' declarations and of one table; which files make commands of their own."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from raybroker.admin.verbs import VERBS
from raybroker.cli import output
from raybroker.cli.exits import UsageError
from raybroker.cli.groups import FILES, HELP, grid, words_of
from raybroker.cli.objects.table import COMMANDS
from raybroker.cli.plain import OBJECTS, Plain, _checked, _function, verb_of
from tests.tidy.source import read, tree_of

BY_HAND = {
    "brokers": "what a broker is, is asked of Ray as well",
    "checking": "grades end with the exit codes of monitoring",
    "cluster": "backups are files, and the record is restored without a broker",
    "definitions": "definitions are files, imported by several calls",
    "drains": "the command waits until others serve, and until nothing is in hand",
    "ending": "the command waits until the broker has ended, or runs again",
    "metrics": "tables again and again, of what changed between two looks",
    "pools": "pools are actors, and no part of a broker",
    "schedules": "a schedule is a message that is sent",
    "services": "several verbs for one command",
    "stored": "pages of messages, and files",
    "takeovers": "the command waits until the broker takes clients",
    "why": "several commands for one verb",
}
"""File of cli/objects → why it makes commands without the table."""


def makers() -> set[str]:
    """The files whose functions are commands."""
    found = set()
    for path, source in read("raybroker/cli/objects").items():
        for node in ast.walk(tree_of(source)):
            decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else ()
            if any("command" in ast.unparse(decorator) for decorator in decorators):
                found.add(Path(path).stem)
    return found


def test_commands_are_made_by_the_table_or_by_files_that_say_why_not() -> None:
    assert makers() == set(BY_HAND)


def test_each_file_makes_the_commands_that_the_grid_expects_of_it() -> None:
    assert set(FILES) == set(BY_HAND)
    by_hand = {words for text in FILES.values() for words in text.split(", ")}
    assert by_hand.isdisjoint(row.words for row in COMMANDS)
    for file, text in FILES.items():
        module = import_module(f"raybroker.cli.objects.{file}").__name__
        made = {words for words, make in grid.items() if make().function.__module__ == module}
        assert made == set(text.split(", "))


def test_the_help_of_a_group_names_its_commands() -> None:
    """What is in the grid and in no help could not be called, and the other way round."""
    named = {f"{verb} {word}" for verb in HELP for word in words_of(verb)}
    assert named == {row.words for row in COMMANDS} | {words for text in FILES.values() for words in text.split(", ")}


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.words)
def test_a_row_says_what_its_verb_needs_and_nothing_else(row: Plain) -> None:
    declared = verb_of(row.words)
    arguments = {
        "option" if each.kind is each.VAR_KEYWORD else name for name, each in declared.signature.parameters.items()
    }
    assert set(row.options) <= arguments
    assert not set(row.more) & arguments
    assert declared is VERBS[declared.name]
    assert row.help.strip()
    if row.words.startswith("list "):
        assert bool(row.show) is not bool(row.columns and row.empty)


def test_a_verb_is_found_by_the_words_of_its_command() -> None:
    assert [verb_of(words).name for words in ("query txn", "list txn", "list policy", "destroy cxn")] == [
        "query_transaction",
        "list_transactions",
        "list_policies",
        "destroy_connection",
    ]
    assert set(OBJECTS) <= set(output.OBJECTS.values())


def test_columns_are_written_in_one_line() -> None:
    assert output.columns("name, client_id, consumers: cons, used: used %") == {
        "name": "name",
        "client_id": "client id",
        "consumers": "cons",
        "used": "used %",
    }


def test_required_options_come_first_and_a_type_behind_its_name() -> None:
    import inspect

    def names(words: str) -> list[str]:
        (row,) = (row for row in COMMANDS if row.words == words)
        return list(inspect.signature(_function(row)).parameters)[1:]

    assert names("create dur") == ["name", "topic", "client_id", "shared", "selector", "no_local"]
    assert names("pause dst") == ["name", "type", "which", "until_ms"]
    assert names("list con") == ["destination", "type", "json"]
    assert names("create dst") == ["name", "type", "option", "if_exists", "idempotent"]
    assert names("move msg") == ["name", "target", "type", "target_type", "selector", "ids", "all"]
    assert names("purge dur") == ["name", "client_id", "topic", "force"]
    assert names("query saf") == ["name", "json"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], "update tpl: nothing to change; give -o attribute=value$"),
        (["maxNumMsgs"], "-o maxNumMsgs: write attribute=value"),
        (["name=x"], "-o name=…: it is no attribute"),
    ],
)
def test_what_cannot_be_changed_is_said_before_anybody_is_asked(options: list[str], why: str) -> None:
    (row,) = (row for row in COMMANDS if row.words == "update tpl")
    given: dict[str, Any] = {"name": "small", "option": options}
    with pytest.raises(UsageError, match=why):
        _checked(row, given)
