"""A docstring is a sentence, or names the thing: it does not begin with a preposition or a conjunction."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tidy.source import Sources, nodes, package, tree_of

# A sentence that would begin so is written the other way round: first what it says, then condition, place or time.
FRAGMENT = re.compile(
    r"(about|after|also|although|always|among|and|as|at|because|before|behind|between|but|by|during|for|from|if|in|into"
    r"|like|never|nor|not|of|on|once|only|onto|or|over|per|since|so|than|through|till|to|under|unless|until|upon|when"
    r"|where|while|with|within|without|the same)\b",
    re.IGNORECASE,
)
# The docstring of a module names what is in it.
QUESTION = re.compile(r"(how|what|whether|which|who|whose|why)\b", re.IGNORECASE)


def violations(sources: Sources) -> Iterator[str]:
    for path, source in sources.items():
        text = ast.get_docstring(tree_of(source)) or ""
        if found := FRAGMENT.match(text) or QUESTION.match(text):
            yield f"{path}:1: the module's docstring begins with {found[0]!r}: name what is in it"
        for node in nodes(source):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
                found := FRAGMENT.match(ast.get_docstring(node) or "")
            ):
                yield f"{path}:{node.lineno}: the docstring of {node.name} begins with {found[0]!r}: write a sentence"


def test_docstrings_are_sentences() -> None:
    assert list(violations(package())) == []


def test_a_fragment_is_found() -> None:
    function = 'def f():\n    """{}"""\n'
    for text in ("Of one host.", "As :meth:`keep`, in any thread.", "Where it listens.", "The same for two.", "Never."):
        assert len(list(violations({"a.py": function.format(text)}))) == 1, text
    assert len(list(violations({"a.py": f"async {function.format('Until it ends.')}"}))) == 1
    assert len(list(violations({"a.py": function.format("For gateways.").replace("def f()", "class A")}))) == 1
    assert len(list(violations({"a.py": '"""Which call runs here."""\n'}))) == 1


def test_a_sentence_is_none() -> None:
    texts = ("Return where it listens.", "Nothing is left to do.", "The address of one host.", "``to_json`` is called.")
    assert list(violations({"a.py": "".join(f'def f():\n    """{text}"""\n\n\n' for text in texts)})) == []
