"""Every argument of a public method stands in the table of argument checks, or among those checked elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from raybroker.client.aio import handles as aio
from raybroker.client.arguments import ARGUMENTS, ELSEWHERE
from raybroker.client.blocking import handles
from raybroker.client.consumer import message

FACES = (
    handles.Connection,
    handles.Session,
    handles.Producer,
    handles.Consumer,
    aio.Connection,
    aio.Session,
    aio.Producer,
    aio.Consumer,
    message.Message,
)


def arguments(kind: type) -> Iterator[tuple[str, str]]:
    """Method and name of each argument of the public methods of a class."""
    for name, member in vars(kind).items():
        if name.startswith("_") or not inspect.isfunction(member):
            continue
        for argument in list(inspect.signature(member).parameters)[1:]:
            yield name, argument


def test_every_argument_of_the_handles_is_in_the_table() -> None:
    known = {*ARGUMENTS, *ELSEWHERE}
    missing = [
        f"{kind.__module__}.{kind.__name__}.{method}({argument}=): add it to raybroker.client.arguments"
        for kind in FACES
        for method, argument in arguments(kind)
        if argument not in known
    ]
    assert missing == []


def test_the_tables_have_no_rows_that_nothing_uses() -> None:
    of_handles = {argument for kind in FACES for _, argument in arguments(kind)} | {"threshold", "ack_timeout_ms"}
    assert sorted(set(ARGUMENTS) - of_handles) == []


def test_help_shows_each_option_with_its_type() -> None:
    shown = str(inspect.signature(handles.Producer.send))
    assert "priority: 'int | None' = None" in shown
    assert "schedule: 'str | None' = None" in shown
    assert "options" not in shown
    assert "fire_and_forget" in str(inspect.signature(handles.Producer.send_async))


def test_an_argument_without_a_row_is_found() -> None:
    class Sample:
        def send(self, body: object, colour: str) -> None:
            """A method with an argument that nobody checks."""

    assert [argument for _, argument in arguments(Sample) if argument not in {*ARGUMENTS, *ELSEWHERE}] == ["colour"]
