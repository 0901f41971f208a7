"""How long the start of a broker waits until it takes clients."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.actors.cluster import ALONE_WAIT_S, FAULTY_WAIT_S, OPEN_WAIT_S, ClusterOpening
from raybroker.cluster.member_state import MemberState
from raybroker.model.errors import MasterUnavailableError, StartingError, StoreError

S = 1_000_000_000
BEGAN_NS = 5 * S


def row(state: MemberState, *faults: str) -> dict[str, Any]:
    operating = state is MemberState.OPERATING
    shown = {"state": str(state), "operating": operating, "faults": list(faults), "refusal": f"it is {state}"}
    shown["refusals"] = []
    shown["starting"] = []
    return {"broker": "b2", **shown}


def over(opening: ClusterOpening, after_s: float, *shown: Any) -> bool:
    return opening.is_over(row(*shown), BEGAN_NS + round(after_s * S))


@pytest.mark.parametrize("alone", [False, True])
def test_a_broker_that_takes_clients_is_open(alone: bool) -> None:
    assert over(ClusterOpening(BEGAN_NS, alone=alone), 0, MemberState.OPERATING)


def test_one_started_alone_that_gets_on_is_waited_for_as_long_as_any_other() -> None:
    opening = ClusterOpening(BEGAN_NS, alone=True)
    for after_s, state in enumerate([MemberState.STARTING, MemberState.REPLAYING, MemberState.EXCHANGING] * 20):
        assert not over(opening, after_s, state)
    with pytest.raises(MasterUnavailableError, match=r"b2 does not take clients after 121 s: it is REPLAYING"):
        over(opening, OPEN_WAIT_S + 1, MemberState.REPLAYING)


def test_one_started_alone_is_left_to_wait_for_its_master() -> None:
    opening = ClusterOpening(BEGAN_NS, alone=True)
    assert not over(opening, 30, MemberState.WAITING_FOR_MASTER)  # Its process took half a minute to start.
    assert not over(opening, 30 + ALONE_WAIT_S, MemberState.WAITING_FOR_MASTER)
    assert over(opening, 30.1 + ALONE_WAIT_S, MemberState.WAITING_FOR_MASTER)


def test_the_wait_for_a_master_begins_anew_when_the_broker_got_on_between() -> None:
    opening = ClusterOpening(BEGAN_NS, alone=True)
    assert not over(opening, 1, MemberState.WAITING_FOR_MASTER)
    assert not over(opening, 3, MemberState.REPLAYING)
    assert not over(opening, 5, MemberState.WAITING_FOR_MASTER)
    assert over(opening, 5.1 + ALONE_WAIT_S, MemberState.WAITING_FOR_MASTER)


@pytest.mark.parametrize(("alone", "limit_s"), [(True, ALONE_WAIT_S), (False, FAULTY_WAIT_S)])
def test_what_somebody_has_to_mend_ends_the_wait_sooner(alone: bool, limit_s: float) -> None:
    opening = ClusterOpening(BEGAN_NS, alone=alone)
    assert not over(opening, 1, MemberState.REPLAYING, "another record")
    assert not over(opening, 2, MemberState.REPLAYING)  # They disagreed for a moment.
    assert not over(opening, 3, MemberState.REPLAYING, "another record")
    assert not over(opening, 3 + limit_s, MemberState.REPLAYING, "another record")
    if alone:
        assert over(opening, 3.1 + limit_s, MemberState.REPLAYING, "another record")
    else:
        with pytest.raises(MasterUnavailableError):
            over(opening, 3.1 + limit_s, MemberState.REPLAYING, "another record")


def test_one_of_several_waits_for_its_master_until_the_end() -> None:
    opening = ClusterOpening(BEGAN_NS, alone=False)
    for after_s in range(int(OPEN_WAIT_S)):
        assert not over(opening, after_s, MemberState.WAITING_FOR_MASTER)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("state", [MemberState.OPERATING, MemberState.REPLAYING])
def test_a_host_that_refuses_its_store_ends_the_wait_with_its_own_error(alone: bool, state: MemberState) -> None:
    shown = {**row(state), "refusals": [("store", "host b2/h1 does not start: it belongs to b1/h1")]}
    with pytest.raises(StoreError, match="host b2/h1 does not start: it belongs to b1/h1"):
        ClusterOpening(BEGAN_NS, alone=alone).is_over(shown, BEGAN_NS)


@pytest.mark.parametrize("alone", [False, True])
def test_a_broker_that_takes_clients_is_waited_for_until_its_hosts_serve(alone: bool) -> None:
    opening = ClusterOpening(BEGAN_NS, alone=alone)
    starting = {**row(MemberState.OPERATING), "starting": ["b2/h3", "b2/h7"]}
    for after_s in range(int(OPEN_WAIT_S)):
        assert not opening.is_over(starting, BEGAN_NS + after_s * S)
    assert over(opening, OPEN_WAIT_S - 1, MemberState.OPERATING)
    with pytest.raises(
        StartingError, match=r"hosts b2/h3, b2/h7 have not started after 121 s: it goes on starting them"
    ):
        opening.is_over(starting, BEGAN_NS + 121 * S)
