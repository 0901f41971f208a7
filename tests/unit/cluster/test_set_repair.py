"""The next change of a replica set on the way to the copies that its brokers have now."""

from __future__ import annotations

import pytest

from raybroker.cluster.replicas.set_repair import next_change, next_requirement, pending


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


@pytest.mark.parametrize(
    ("voters", "learners", "wanted", "level", "there", "step"),
    [
        ("a b c", "", "a b d", "", "a b c d", ("add", "d")),  # What answers goes last.
        ("a b c", "d", "a b d", "", "a b c d", None),
        ("a b c", "d", "a b d", "d", "a b c d", ("promote", "d")),
        ("a b c d", "", "a b d", "", "a b c d", ("remove", "c")),
        ("a b c", "", "a b d", "", "a b d", ("remove", "c")),  # What is lost goes first.
        ("a b c d e", "", "a b c", "", "a b c d e", ("remove", "d")),
        ("a b", "", "a", "", "a b", ("remove", "b")),  # A majority of two is both of them, and one is wanted.
        ("a b c", "", "b c d", "", "a b c d", ("add", "d")),
        ("a b c d", "", "b c d", "", "a b c d", ("remove", "a")),
        ("a b c d", "", "b d", "", "a b c d", ("remove", "c")),  # The leader's own is the very last.
    ],
)
def test_a_set_that_is_to_be_another_one_is_never_smaller_than_it_must_be(
    voters: str, learners: str, wanted: str, level: str, there: str, step: tuple[str, str] | None
) -> None:
    before = voters.split()
    found = next_change(
        before, learners.split(), wanted.split(), level.split(), len(before) // 2 + 1, there.split(), "a"
    )
    assert found == step


def test_a_broker_that_has_not_said_which_copy_it_has_is_waited_for() -> None:
    there = ["a", "b", "c", "d"]
    assert next_change(["a", "b", "c"], ["d"], ["a", "b", ""], ["d"], 2, there) is None
    assert next_change(["a", "b", "c"], [], ["a", "b", "", "c"], [], 2, there) is None


@pytest.mark.parametrize(
    ("required", "wanted", "settled", "found"),
    [(0, 0, True, None), (2, 0, False, 0), (3, 2, False, 2), (0, 3, False, None), (0, 3, True, 3), (3, 3, True, None)],
)
def test_less_is_required_before_copies_go_and_more_when_all_are_there(
    required: int, wanted: int, settled: bool, found: int | None
) -> None:
    assert next_requirement(required, wanted, settled=settled) == found


def test_what_a_set_waits_for_is_told() -> None:
    copies = [
        {"copy": "a", "voter": True, "behind": 0, "pace": "leader"},
        {"copy": "b", "voter": True, "behind": 0, "pace": "streaming"},
        {"copy": "c", "voter": False, "behind": 1234, "pace": "installing"},
    ]
    assert pending({"b1": "a", "b2": "b", "b3": "c", "b4": ""}, ["b2"], copies) == [
        "the copy at broker b2 goes when the others have everything",
        "waits for copy 3, at broker b3: it lacks 1,234 entries",
        "waits for copy 4, at broker b4: it is not in the set yet",
    ]
    assert pending({"b1": "a", "b2": "b"}, [], copies) == []
    assert pending({"b1": "a"}, ["b1"], copies) == ["the copy at broker b1 goes when another one leads"]
