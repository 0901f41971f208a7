"""Routes are found by what came, segment for segment, before it is decoded."""

from __future__ import annotations

import pytest

from raybroker.errors import MessageFormatError
from raybroker.services.web.routes import Routes


def routes() -> Routes[str]:
    made: Routes[str] = Routes()
    for method, path in (
        ("GET", "/a"),
        ("POST", "/a"),
        ("GET", "/a/{name}"),
        ("POST", "/a/all"),
        ("GET", "/a/{name}/b"),
        ("GET", "/a/{name}/{other}"),
    ):
        made.add(method, path, f"{method} {path}")
    return made


@pytest.mark.parametrize(
    ("path", "method", "found", "given"),
    [
        (b"/a", "GET", "GET /a", {}),
        (b"/a/x", "GET", "GET /a/{name}", {"name": "x"}),
        (b"/a/x%2Fy", "GET", "GET /a/{name}", {"name": "x/y"}),
        (b"/a/%C3%A4", "GET", "GET /a/{name}", {"name": "ä"}),
        (b"/a/all", "POST", "POST /a/all", {}),
        (b"/a/x/b", "GET", "GET /a/{name}/b", {"name": "x"}),
        (b"/a/x/c", "GET", "GET /a/{name}/{other}", {"name": "x", "other": "c"}),
    ],
)
def test_a_path_is_found(path: bytes, method: str, found: str, given: dict[str, str]) -> None:
    there = routes().find(path)
    assert (there.methods[method], there.given) == (found, given)


@pytest.mark.parametrize("path", [b"", b"/", b"/b", b"/a/", b"/a//b", b"/a/x/b/c", b"a"])
def test_a_path_that_there_is_not_has_no_methods(path: bytes) -> None:
    assert routes().find(path).methods == {}


def test_a_segment_that_is_no_text_is_refused_and_one_that_is_there_is_not_added_again() -> None:
    with pytest.raises(MessageFormatError, match="no UTF-8"):
        routes().find(b"/a/%ff")
    with pytest.raises(AssertionError, match="twice"):
        routes().add("GET", "/a", "again")
    assert routes().paths == ["/a", "/a/{name}", "/a/all", "/a/{name}/b", "/a/{name}/{other}"]
