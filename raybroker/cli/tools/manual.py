"""``raybroker help``: the pages of the manual, which come with the package as plain Markdown."""

from __future__ import annotations

import difflib
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated, Any, Final

import typer

from raybroker.cli import output
from raybroker.cli.exits import UsageError

FIRST: Final = (
    "concepts",
    "ray",
    "jms",
    "delivery",
    "flow",
    "clusters",
    "security",
    "protocols",
    "amqp",
    "operating",
    "monitoring",
    "performance",
    "limits",
    "features",
)
"""Topics in the order in which they are read; the reference follows by name."""
LINE_CHARS_MAX: Final = 100
"""A page is not wider than this at a terminal, however wide that is."""


def pages() -> dict[str, Traversable]:
    """Topic → page, in reading order."""
    folder = files("raybroker") / "manual"
    found = {
        page.name.removesuffix(".md"): page
        for place in (folder, folder / "reference")
        for page in place.iterdir()
        if page.name.endswith(".md")
    }
    return {topic: found[topic] for topic in sorted(found, key=_place)}


def _place(topic: str) -> tuple[int, str]:
    return (FIRST.index(topic) if topic in FIRST else len(FIRST), topic)


Topic = Annotated[
    str | None,
    typer.Argument(
        metavar="TOPIC",
        help="The page; without one the topics are listed.",
        autocompletion=lambda: list(pages()),
    ),
]


def show(context: typer.Context, topic: Topic = None) -> None:
    """Show a page of the manual, or list the topics."""
    there = pages()
    if topic is None:
        rows = [{"topic": name, "title": _title(page)} for name, page in there.items()]
        output.table(rows, {"topic": "topic", "title": "title"}, empty="the manual has no pages")
        return
    if topic not in there:
        raise UsageError(_unknown(topic, there, context.find_root().command))
    text = there[topic].read_text(encoding="utf-8")
    if output.is_terminal():
        _render(text)
    else:
        output.say(text.rstrip("\n"))


def _title(page: Traversable) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _unknown(topic: str, there: dict[str, Traversable], program: Any) -> str:
    near = difflib.get_close_matches(topic.lower(), there, n=3)
    meant = f"; the nearest {'is' if len(near) == 1 else 'are'} {' and '.join(near)}" if near else ""
    command = f"; raybroker {topic} --help shows that command" if topic in program.commands else ""
    return f"the manual has no page {topic!r}{meant}{command}. Topics: {', '.join(there)}"


def _render(text: str) -> None:
    from rich.console import Console
    from rich.markdown import Markdown, TableElement
    from rich.table import Table

    class Folded(TableElement):
        """A table that goes on in the next line where a word is too long, in place of cutting it."""

        def __rich_console__(self, *arguments: Any) -> Any:
            for table in super().__rich_console__(*arguments):
                if isinstance(table, Table):
                    for column in table.columns:
                        column.overflow = "fold"
                yield table

    class Page(Markdown):
        elements = {**Markdown.elements, "table_open": Folded}  # noqa: RUF012 (as in Markdown)

    console = Console()
    console.print(Page(text, hyperlinks=False), width=min(console.width, LINE_CHARS_MAX))
