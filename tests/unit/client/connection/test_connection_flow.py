"""The flow limits of a connection: when its hosts are told to stop and to go on."""

from __future__ import annotations

from raybroker.client.connection.connection_flow import FLOW_COUNT, ConnectionFlow
from raybroker.config import Config


class Flow(ConnectionFlow):
    """What it has told the hosts is in ``told``."""

    def __init__(self, **attributes: object) -> None:
        self.told: list[bool] = []
        super().__init__(Config.from_values(attributes), self.told.append, lambda call, go: call(go))


def test_hosts_stop_above_the_limit_and_go_on_below_it() -> None:
    flow = Flow(imqConnectionFlowLimitEnabled=True, imqConnectionFlowLimit=10, imqConnectionFlowCount=0)
    flow.arrived(10)
    assert flow.told == []
    flow.arrived(1)
    assert flow.told == [False]
    flow.handed_out(1)
    assert flow.told == [False], "at the limit it stays as it is"
    flow.handed_out(1)
    assert flow.told == [False, True]


def test_with_a_limit_of_0_hosts_go_on_once_the_buffers_are_empty() -> None:
    flow = Flow(imqConnectionFlowLimitEnabled=True, imqConnectionFlowLimit=0)
    flow.arrived(2)
    flow.handed_out(1)
    assert flow.told == [False]
    flow.handed_out(1)
    assert flow.told == [False, True]


def test_after_so_many_messages_hosts_are_told_to_go_on_unless_they_are_stopped() -> None:
    flow = Flow(imqConnectionFlowLimitEnabled=True, imqConnectionFlowLimit=10, imqConnectionFlowCount=5)
    flow.meter(4)
    assert flow.told == []
    flow.meter(1)
    assert flow.told == [True]
    flow.arrived(11)
    assert flow.told == [True, False], "the count is full, but so are the buffers"
    flow.handed_out(11)
    assert flow.told == [True, False, True]


def test_a_limit_without_a_count_has_the_host_ask_now_and_then_and_no_limit_counts_nothing() -> None:
    assert Flow(imqConnectionFlowLimitEnabled=True, imqConnectionFlowCount=0).meter_max == FLOW_COUNT
    free = Flow(imqConnectionFlowLimitEnabled=False, imqConnectionFlowCount=0)
    assert not free.counts_buffered
    free.arrived(1_000_000)
    assert free.told == []
