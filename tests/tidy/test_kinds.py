"""Kinds of definitions are declared once: each is complete, and nothing outside the table lists them again."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields

import pytest

from raybroker.admin.verbs import VERBS
from raybroker.cluster.change_record import KIND_OF, RecordState
from raybroker.model.definitions.kinds.kind import Kind, Reading
from raybroker.model.definitions.kinds.table import KINDS, RECORDED
from raybroker.model.definitions.pauses import WORK
from raybroker.model.definitions.values import Defaults, Definitions
from tests.tidy.source import Sources, package, tree_of

WORDS = "raybroker/model/definitions/pauses.py"
READING = Reading(Defaults.from_config())
OF_WORD = {
    word: "destination" if kind.name in ("queue", "topic") else kind.name
    for kind in KINDS
    if kind.name != "properties"  # Messages and blocks have some as well.
    for word in (kind.name, kind.section, *kind.verbs.values())
}
LISTED_MAX = 2
"""Kinds that one list, set or table of constants may name outside the table."""
EXCUSED = {
    "raybroker/cli/output.py": "the words of commands for whatever verbs are about, of which kinds are some",
    "raybroker/store/catalogue.py": "the layout of a file of one broker, read below the table",
}


def violations(sources: Sources) -> Iterator[str]:
    for path, source in sources.items():
        for node in ast.walk(tree_of(source)):
            items = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", ())
            words = {item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)}
            kinds = {OF_WORD[word] for word in words if word in OF_WORD}
            if len(kinds) > LISTED_MAX and path not in EXCUSED:
                yield f"{path}:{node.lineno} lists kinds of definitions again: {', '.join(sorted(kinds))}"
        if path != WORDS:
            for node in ast.walk(tree_of(source)):
                if isinstance(node, ast.Constant) and node.value in WORK.values() and node.value not in WORK:
                    yield f"{path}:{node.lineno} spells {node.value!r}, a word of {WORDS}"


def test_nothing_lists_the_kinds_or_the_words_of_pauses_again() -> None:
    assert list(violations(package())) == []


def test_another_list_is_found() -> None:
    sources = {"raybroker/a.py": 'A = ("quotas", "templates", "policies")\nB = "production"\n'}
    assert list(violations(sources)) == [
        "raybroker/a.py:1 lists kinds of definitions again: policy, quota, template",
        f"raybroker/a.py:2 spells 'production', a word of {WORDS}",
    ]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.section)
def test_each_kind_is_complete(kind: Kind) -> None:
    assert kind.name
    assert kind.section
    assert set(kind.verbs.values()) <= VERBS.keys()
    assert set(kind.verbs) <= {"create", "update", "destroy"}
    assert "destroy" in kind.verbs or kind.last, "it is undone by a verb, or by its configuration"
    assert not kind.lists or kind.lists in VERBS
    for part in ("read", "entry", "plain", "of_record", "compared", "plan", "plan_end"):
        assert callable(getattr(kind, part))
    assert kind.read((), READING) == {} if kind.plain({}) == [] else kind.read({}, READING) == {}


def test_definitions_and_the_record_have_a_table_for_each_kind_and_no_other() -> None:
    assert [kind.section for kind in KINDS] == [one.name for one in fields(Definitions) if one.name != "missing"]
    assert set(RecordState.__annotations__) == {kind.table for kind in RECORDED}
    assert len({change for kind in RECORDED for change in (kind.make, kind.end)}) == 2 * len(RECORDED)
    assert set(KIND_OF.values()) == set(RECORDED)
