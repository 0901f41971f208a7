"""The nearest known name."""

from __future__ import annotations

from raybroker.model.naming.nearest import nearest


def test_the_most_similar_name_is_found_and_a_strange_one_is_not() -> None:
    assert nearest("mesages", ["messages", "bytes"]) == "messages"
    assert nearest("xyz", ["messages", "bytes"]) == ""
    assert nearest("xyz", iter(["messages", "bytes"]), least=0.0) in ("messages", "bytes")
    assert nearest("xyz", [], least=0.0) == ""
