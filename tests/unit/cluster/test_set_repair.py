"""The next change of a replica set on the way to the copies that its brokers have now."""

from __future__ import annotations

import pytest

from raybroker.cluster.replicas.set_repair import next_change


@pytest.mark.parametrize(
    ("voters", "learners", "caught_up", "quorum", "step"),
    [
        ("a b c", "", "", 2, None),
        ("a b x", "", "", 2, ("remove", "x")),
        ("a b", "", "", 2, ("add", "c")),
        ("a b", "c", "", 2, None),
        ("a b", "c", "c", 2, ("promote", "c")),
        ("a b", "x", "", 2, ("remove", "x")),
        ("a b x", "", "", 3, ("add", "c")),  # All three have to have it: the new one gets its vote first.
        ("a b x", "c", "c", 3, ("promote", "c")),
        ("a b x c", "", "", 3, ("remove", "x")),
    ],
)
def test_one_change_at_a_time(
    voters: str, learners: str, caught_up: str, quorum: int, step: tuple[str, str] | None
) -> None:
    assert next_change(voters.split(), learners.split(), "abc", caught_up.split(), quorum) == step


def test_the_changes_lead_to_the_copies_that_are_wanted() -> None:
    """Of every set of three, of which up to one is there."""
    for before in ("a b x", "a x y", "x b c"):
        voters, learners = before.split(), list[str]()
        for _ in range(12):
            step = next_change(voters, learners, "abc", learners, len(voters) // 2 + 1)
            if step is None:
                break
            change, copy = step
            if change == "add":
                learners.append(copy)
            else:
                learners = [one for one in learners if one != copy]
                voters = [*voters, copy] if change == "promote" else [one for one in voters if one != copy]
        assert sorted(voters) == ["a", "b", "c"]
        assert learners == []
