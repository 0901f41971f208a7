"""Positions among the members of distributed destinations."""

from __future__ import annotations

from raybroker.client.connection.belongings import Choosers
from raybroker.client.destinations import Queue, Topic


def test_producers_of_one_destination_share_a_position_and_consumers_have_their_own() -> None:
    choosers = Choosers()
    first = choosers.chooser_for(Queue("q"), "Round-Robin", "producers")
    assert choosers.chooser_for(Queue("q"), "Round-Robin", "producers") is first
    assert choosers.chooser_for(Queue("q"), "Round-Robin", "consumers") is not first
    assert choosers.chooser_for(Topic("q"), "Round-Robin", "producers") is not first


def test_another_policy_of_the_destination_begins_anew() -> None:
    choosers = Choosers()
    first = choosers.chooser_for(Queue("q"), "Round-Robin", "producers")
    other = choosers.chooser_for(Queue("q"), "Random", "producers")
    assert other is not first
    assert other.policy == "Random"
