"""Completion without a shell: what may come next on a line, and how words of a line are read and written."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.cli.completion import live
from raybroker.cli.completion.line import Last, quoted, split
from raybroker.cli.completion.words import FILES, FIXED, LIVE, OWN, found
from raybroker.cli.groups import HELP, words_of
from tests import program

TEXT = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("line", "words", "last"),
    [
        ("", [], Last("")),
        ("raybroker ", ["raybroker"], Last("")),
        ("a b", ["a"], Last("b")),
        (r"a b\ c", ["a"], Last("b c")),
        ("a 'b c", ["a"], Last("b c", "'")),
        ('a "b\\"$c', ["a"], Last('b"$c', '"')),
        ("a 'b c' ", ["a", "b c"], Last("")),
        ("a 'b c'", ["a"], Last("b c", "", None)),
        ("a b'c", ["a"], Last("bc", "'", None)),
        ("a b:c", ["a"], Last("b:c", "", 2)),
        ("a --b=c", ["a"], Last("--b=c", "", 4)),
        ("a --b='c", ["a"], Last("--b=c", "'", 4)),
        (r"a b\:c", ["a"], Last("b:c")),
        (r"a $(x) `y` $z", ["a", "$(x)", "`y`"], Last("$z")),
        ("a '' b", ["a", ""], Last("b")),
        ("a b\\", ["a"], Last("b", "", None)),
    ],
)
def test_a_line_is_split_as_bash_does_it(line: str, words: list[str], last: Last) -> None:
    assert split(line, ":=") == (words, last)


@given(TEXT)
def test_a_word_that_is_written_is_read_again(text: str) -> None:
    assert shlex.split(str(quoted(text))) == [text]
    assert shlex.split(f"'{quoted(text, chr(39))}'") == [text]
    if "!" not in text:
        assert split(f'x "{quoted(text, chr(34))}')[1] == Last(text, '"')
    assert split(f"x {quoted(text)}")[1].text == text


def words(line: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What may come next; names are those of what is asked for, with the type."""

    def names(what: str, kind: str | None, given: object) -> list[str]:
        return [f"{what} {kind}" if kind and what == "list_destinations name" else what]

    monkeypatch.setattr(live, "names", names)
    before, last = split(line)
    return list(found(program.commands(), before, last.text).words)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("qu", ["query", "quiesce"]),
        ("list d", ["dst", "dur"]),
        ("nothing d", []),
        ("query dst -n ", ["list_destinations name queue"]),
        ("query dst -t t -n ", ["list_destinations name topic"]),
        ("query dst --name=", ["list_destinations name queue"]),
        ("query dst --type=topic --name=", ["list_destinations name topic"]),
        ("reset dst -n ", ["list_destinations name"]),
        ("create dst -n ", []),
        ("create saf -n ", []),
        ("create saf -q ", ["list_destinations name queue"]),
        ("move msg -n a --to ", ["list_destinations name queue"]),
        ("query con -n ", ["list_consumers id"]),
        ("query cxn -n ", ["list_connections id"]),
        ("list cxn --by ", ["list_users user"]),
        ("list con -d ", ["list_destinations name"]),
        ("purge dur -d ", ["list_destinations name topic"]),
        ("purge dur -n ", ["list_subscriptions name"]),
        ("purge dur -n a -c ", ["list_subscriptions client_id"]),
        ("commit txn -n ", ["list_transactions id"]),
        ("update tpl -n ", ["list_templates name"]),
        ("update quota -n ", ["list_quotas name"]),
        ("update policy -n ", ["list_policies name"]),
        ("destroy sch -n ", ["list_schedules id"]),
        ("query saf -n ", ["list_forwardings name"]),
        ("query bkr -b ", ["list_brokers broker"]),
        ("check bkr -b ", ["list_brokers broker"]),
        ("why msg -n ", ["list_destinations name queue"]),
        ("why con ", ["--"]),
        ("send ", ["list_destinations name"]),
        ("receive ", ["list_destinations name"]),
        ("why-denied ", ["list_users user"]),
        ("pause svc -n ssl", ["ssljms", "ssladmin", "sslstomp"]),
        ("pause dst -pst P", ["PRODUCERS"]),
        ("pause dst --pst P", ["PRODUCERS"]),
        ("list dst --js", ["--json"]),
        ("list dst --json --js", []),
        ("update dst -n a -o maxNumM", ["maxNumMsgs="]),
        ("completion ", ["bash", "fish", "zsh"]),
        ("help conce", ["concepts"]),
        ("--cont", ["--context"]),
        ("context u", ["use"]),
        ("mq imqcm", ["imqcmd"]),
    ],
)
def test_what_may_come_next(line: str, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    came = words(line, monkeypatch)
    if expected == ["--"]:
        assert came
        assert all(word.startswith("-") for word in came)
    else:
        assert sorted(came) == sorted(expected)


@pytest.mark.parametrize("line", ["list dst --passfile ", "export definitions ", "salvage ", "send q --token-file "])
def test_files_are_left_to_the_shell(line: str) -> None:
    before, last = split(line)
    assert found(program.commands(), before, last.text).files


def test_every_name_of_a_thing_that_is_there_can_be_completed() -> None:
    """Of options, what they are called says what they name: none of the grid is forgotten."""
    named = {"name", "id", "destination", "topic", "queue", "target", "broker", "only", "user", "client_id", "consumer"}
    for verb in HELP:
        for word in words_of(verb):
            for one in program.commands().commands[verb].commands[word].params:
                known = LIVE.get(word, {}).get(one.name) or OWN.get((word, one.name)) or one.name in {*FILES, *FIXED}
                excused = (word, one.name) in EXCUSED or word in ("pool", "prod") or verb == "create"
                assert one.name not in named or known or excused, (verb, word, one.name)


EXCUSED = {("msg", "id")}
"""Ids of messages are many, and nobody knows one by heart."""


def test_the_script_names_the_program_and_another_shell_is_refused(raybroker: Any) -> None:
    assert "complete -F _raybroker raybroker" in raybroker.output("completion", "bash")
    assert "compdef _raybroker raybroker" in raybroker.output("completion", "zsh")
    assert "complete -c raybroker" in raybroker.output("completion", "fish")
    refused = raybroker("completion", "tcsh")
    assert (refused.exit_code, "bash, zsh, fish" in refused.stderr) == (2, True)


def test_names_that_nobody_tells_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside of Ray nobody is asked; a broker that does not answer is not waited for longer than is said."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nothing")
    assert live.names("list_destinations name", None, {}) == []
    monkeypatch.setenv("RAYBROKER_COMPLETION_S", "0.01")
    assert live.names("list_destinations name", None, {"broker_address": "127.0.0.1:1", "outside_user": "ann"}) == []
