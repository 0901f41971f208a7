"""Handles that nobody has any more are closed by themselves."""

from __future__ import annotations

import gc
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

from raybroker.client.io.unreferenced import Handles
from raybroker.model.errors import IllegalStateError


class Handle: ...


class Io:
    """Remembers what it is to run."""

    def __init__(self, refuses: Exception | None = None) -> None:
        self.refuses = refuses
        self.work: list[Future[None]] = []

    def submit(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        if self.refuses is not None:
            raise self.refuses
        work.close()
        self.work.append(Future())
        return self.work[-1]


def handles_of(io: Any, *, ended: bool = False) -> Handles[Handle]:
    return Handles(io, lambda: ended)


async def closed() -> None: ...


def test_a_handle_without_a_reference_is_closed_and_counts_until_that_is_done() -> None:
    io = Io()
    handles = handles_of(io)
    kept, lost = Handle(), Handle()
    for one in (kept, lost):
        handles.add(one, closed)
    assert (list(handles), len(handles)) == ([kept, lost], 2)
    del one, lost
    gc.collect()
    (done,) = io.work
    assert (list(handles), handles.closing()) == ([kept], [done])
    done.set_result(None)
    assert handles.closing() == []


def test_a_handle_that_was_closed_is_not_listed() -> None:
    handles, one, other = handles_of(Io()), Handle(), Handle()
    for handle in (one, other):
        handles.add(handle, closed)
    handles.remove(one)
    assert list(handles) == [other]


def test_what_was_closed_by_itself_or_with_its_connection_makes_no_work() -> None:
    io = Io()
    handles = handles_of(io)
    one = Handle()
    handles.add(one, closed)
    handles.remove(one)
    del one
    handles_of(io, ended=True).add(Handle(), closed)
    gc.collect()
    assert io.work == []


def test_in_a_forked_child_nothing_is_left_to_be_done() -> None:
    handles = handles_of(Io(IllegalStateError("a forked child")))
    handles.add(Handle(), closed)
    gc.collect()
    assert (list(handles), handles.closing()) == ([], [])
