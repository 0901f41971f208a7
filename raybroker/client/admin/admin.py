"""``conn.admin()``: every administrative verb as a method, as raybroker.admin.verbs declares them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar

from raybroker.admin.verb import Asynchronous, Blocking
from raybroker.admin.verbs import AdminVerbs
from raybroker.client.pickled import Unpicklable

Page = TypeVar("Page", bound=Mapping[str, Any])


class Admin(AdminVerbs, Blocking, Unpicklable):
    """The blocking face; ``call(verb, arguments)`` carries a verb to the broker."""

    def __init__(self, call: Callable[[str, dict[str, Any]], Any]) -> None:
        self._call = call

    def __repr__(self) -> str:
        return "<Admin>"


class AsyncAdmin(AdminVerbs, Asynchronous, Unpicklable):
    """The verbs of Admin with awaitables of the answers."""

    def __init__(self, call: Callable[[str, dict[str, Any]], Awaitable[Any]]) -> None:
        self._call = call

    def __repr__(self) -> str:
        return "<AsyncAdmin>"


def pages(ask: Callable[[Any], Page]) -> Iterator[Page]:
    """All pages of the blocking face; ``ask(start)`` gets one, such as
    ``lambda start: admin.browse_messages("queue", "orders", start=start)``."""
    start: Any = None
    while True:
        page = ask(start)
        yield page
        start = page["next"]
        if start is None:
            return
