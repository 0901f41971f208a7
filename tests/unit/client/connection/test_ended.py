"""Why a connection was ended from the broker's side."""

from __future__ import annotations

import pytest

from raybroker.client.connection.channels import Ended
from raybroker.errors import BrokerError, ConnectionEndedError


def test_it_ends_once_and_each_who_asks_gets_an_error_of_its_own() -> None:
    ended, told = Ended(), list[BrokerError]()
    ended.listeners.append(told.append)
    ended.require_going_on()
    assert ended.by(ConnectionEndedError("one"))
    assert not ended.by(ConnectionEndedError("two"))
    raised = []
    for _ in range(2):
        with pytest.raises(ConnectionEndedError, match="one") as caught:
            ended.require_going_on()
        raised.append(caught.value)
    assert [str(error) for error in told] == ["one"]
    assert raised[0] is not raised[1]
