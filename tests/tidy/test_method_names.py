"""A method says what it does to what: a word that says neither names few classes' methods, and fewer later."""

from __future__ import annotations

import ast
from collections import Counter
from typing import Final

from tests.tidy.source import Sources, package, tree_of

VAGUE: Final = {
    # Alone these words say nothing of what is taken, made, ended, asked or settled.
    "_ask": 0,
    "_begin": 0,
    "_end": 0,
    "_look": 0,
    "_of": 0,
    "_take": 0,
    "ask": 0,
    "look": 0,
    "of": 0,
    "settle": 0,
    "begin": 2,
    "end": 4,  # The last place of a range; Xa, as its standard calls it.
    "forget": 3,  # Xa, and what hosts call at their broker.
    "refused": 5,  # The count of messages, as the handles of applications have it.
    "row": 2,  # One broker of a shared store.
    "rows": 0,
    "take": 3,  # QueueDataset, as Ray Data calls it; a broker's tenure.
    "tick": 7,  # The parts of a machine that goes by measured time, each called by the whole; as in Raft.
    # Right for a resource (a socket, a file, a producer, a session), not for a part of what a class manages.
    "close": 108,
    "start": 34,
    "stop": 31,
}
"""Name of a method → the classes that may have it; the numbers only get smaller. The blocking face counts once."""


def shared(sources: Sources) -> Counter[str]:
    """How many classes have a method of each name."""
    found: Counter[str] = Counter()
    for path, source in sources.items():
        if path.startswith("raybroker/client/blocking/"):
            continue
        for node in ast.walk(tree_of(source)):
            if isinstance(node, ast.ClassDef):
                found.update(
                    {part.name for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}
                )
    return found


def test_methods_say_what_they_take_and_end() -> None:
    found = shared(package())
    assert {name: found[name] for name, most in VAGUE.items() if found[name] > most} == {}


def test_a_name_that_two_classes_share_is_counted() -> None:
    sources = {
        "raybroker/a.py": "class A:\n    def take(self): ...\n\n\nclass B:\n    async def take(self): ...\n",
        "raybroker/client/blocking/b.py": "class C:\n    def take(self): ...\n",
    }
    assert shared(sources) == {"take": 2}
