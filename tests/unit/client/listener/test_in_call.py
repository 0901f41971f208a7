"""What counts as inside of a listener's call."""

from __future__ import annotations

import contextvars
from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.client.listener.in_call import ALLOWED, in_call, require_may_end
from raybroker.model.errors import IllegalStateError


def made(allowed: bool) -> tuple[Any, Any, Any]:
    """A connection with two sessions."""
    connection = SimpleNamespace(attributes={ALLOWED: allowed})
    return connection, SimpleNamespace(connection=connection), SimpleNamespace(connection=connection)


def test_only_the_own_session_and_connection_are_kept_open_and_only_where_that_is_set() -> None:
    connection, session, sibling = made(False)
    require_may_end("close()", connection)
    other, *_ = made(False)
    with in_call(session):
        for own in ((connection,), (connection, session)):
            with pytest.raises(IllegalStateError, match="AllowCloseInOnMessage=false"):
                require_may_end("close()", *own)
        require_may_end("close()", connection, sibling)
        require_may_end("close()", other)
    require_may_end("close()", connection, session)
    free, own_session, _ = made(True)
    with in_call(own_session):
        require_may_end("close()", free, own_session)


def test_what_a_listener_leaves_behind_is_not_in_its_call() -> None:
    connection, session, _ = made(False)
    with in_call(session):
        left = contextvars.copy_context()
    left.run(require_may_end, "close()", connection, session)
