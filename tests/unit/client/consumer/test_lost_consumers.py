"""Handles of consumers: kept with a listener, weak without one, and closed when nobody has them."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.client.consumer.lost_consumers import ConsumerHandles, let_go


class Handle: ...


def test_a_handle_lives_as_long_as_the_application_has_it() -> None:
    handles: ConsumerHandles[Handle] = ConsumerHandles()
    first, second = Handle(), Handle()
    for one in (first, second):
        handles.add(one)
    assert list(handles) == [first, second]
    del first, one
    gc.collect()
    assert list(handles) == [second]
    handles.discard(second)
    assert list(handles) == []


def test_a_handle_with_a_listener_is_kept_until_it_is_closed() -> None:
    handles: ConsumerHandles[Handle] = ConsumerHandles()
    handles.add(Handle())
    kept = Handle()
    handles.add(kept)
    for _ in range(2):
        handles.keep(kept, core())
    gc.collect()
    assert (list(handles.kept), list(handles)) == ([kept], [kept])
    handles.discard(kept)
    assert (list(handles.kept), list(handles)) == ([], [])


def core(**state: Any) -> Any:
    posted: list[Any] = []
    connection = SimpleNamespace(
        tasks=SimpleNamespace(closed=state.get("ended", False)),
        io=SimpleNamespace(unusable=state.get("unusable", ""), post=posted.append),
    )
    return SimpleNamespace(
        has_ended=lambda: state.get("closed", False),
        name="q",
        let_go=lambda: None,
        _connection=connection,
        posted=posted,
    )


def test_a_consumer_that_nobody_has_is_closed_with_a_warning() -> None:
    lost = core()
    with pytest.warns(ResourceWarning, match="a consumer of q was never closed"):
        let_go(lost)
    assert lost.posted == [lost.let_go]


@pytest.mark.parametrize("state", [{"closed": True}, {"ended": True}, {"unusable": "a forked child"}])
def test_one_that_has_ended_is_left_alone(state: dict[str, Any], recwarn: pytest.WarningsRecorder) -> None:
    ended = core(**state)
    let_go(ended)
    assert (ended.posted, len(recwarn)) == ([], 0)
