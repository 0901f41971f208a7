"""The plan of an import: from any definitions to any others, and nothing from some to the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from raybroker.model.definitions.definition_plan import plan
from raybroker.model.definitions.definitions import definitions_of, plain
from raybroker.model.definitions.kinds.kind import KindPlace, KindStep
from raybroker.model.definitions.kinds.properties import shared_properties
from raybroker.model.definitions.kinds.subscription import NO_PRUNE
from raybroker.model.definitions.values import Defaults, Definitions
from raybroker.model.errors import ConfigError

DEFAULTS = Defaults.from_config()
CONFIGURED = {"imq.log.level": "INFO", "imq.message.expiration.interval": 60}
PLACE = KindPlace(DEFAULTS, {"b1": CONFIGURED})
TWO = KindPlace(DEFAULTS, {"b1": CONFIGURED, "b2": CONFIGURED}, users=True)
SCRAM, OTHER = "SCRAM-SHA-256$600000:c2FsdA==$a2V5:a2V5", "SCRAM-SHA-256$600000:c2FsdA==$b3Ro:b3Ro"


def made(**sections: Any) -> Definitions:
    return definitions_of({"raybroker": {"definitions": 1}, **sections}, DEFAULTS)


def words(steps: tuple[KindStep, ...]) -> list[str]:
    return [f"{step.action} {step.kind} {step.name}" for step in steps]


def test_quotas_templates_and_policies_come_before_what_needs_them_and_go_after_it() -> None:
    full = made(
        properties={"imq.log.level": "WARNING"},
        quotas={"q": {"MessagesMaximum": 5}},
        templates={"t": {"quota": "q"}},
        policies={"p": {"pattern": ">", "attributes": {"useDMQ": True}}},
        topics={"b": {}},
        queues={"a": {"template": "t", "quota": "q"}},
        subscriptions=[
            {"name": "s", "topic": "b"},
            {"name": "s", "topic": "auto", "client_id": "me"},
        ],
        agents={"f": {"queue": "a", "to": "c/a"}},
    )
    up, down = plan(Definitions(), full, PLACE), plan(full, Definitions(), PLACE, prune=True)
    assert words(up.steps) == [
        "create quota q",
        "create template t",
        "create policy p",
        "create queue a",
        "create topic b",
        "create subscription s",
        "create subscription s of client me",
        "create agent f",
        "update properties broker",
    ]
    assert words(down.steps) == [
        "update properties broker",
        "destroy agent f",
        "destroy subscription s of client me",
        "destroy topic b",
        "destroy queue a",
        "destroy policy p",
        "destroy template t",
        "destroy quota q",
    ]
    assert (up.after, down.after) == (full, Definitions())
    left = plan(full, Definitions(), PLACE)
    assert (left.steps, left.after) == ((), full)
    assert left.left == (
        "properties broker",
        "quota q",
        "template t",
        "policy p",
        "queue a",
        "topic b",
        "subscription s",
        "subscription s of client me",
        "agent f",
    )


def test_a_step_is_a_verb_with_its_arguments_and_shows_old_and_new() -> None:
    now, wanted = made(queues={"a": {"maxNumMsgs": 5, "useDMQ": False}}), made(queues={"a": {"maxNumMsgs": 7}})
    (step,) = plan(now, wanted, PLACE).steps
    assert step == KindStep(
        "update",
        "queue",
        "a",
        {"maxNumMsgs": (5, 7), "useDMQ": (False, True)},
        "update_destination",
        {"type": "queue", "name": "a", "changes": {"maxNumMsgs": 7, "useDMQ": True}},
    )


def test_destinations_that_follow_a_template_are_brought_back_when_they_are_wanted_otherwise() -> None:
    now = made(
        templates={"t": {"maxNumMsgs": 5}},
        queues={name: {"maxNumMsgs": 5, "template": "t"} for name in ("follows", "stays", "else")},
    )
    wanted = made(
        templates={"t": {"maxNumMsgs": 9}},
        queues={
            "follows": {"maxNumMsgs": 9, "template": "t"},
            "stays": {"maxNumMsgs": 5, "template": "t"},
        },
    )
    found = plan(now, wanted, PLACE)
    assert words(found.steps) == ["update template t", "update queue stays"]
    assert found.after.queues["else"]["maxNumMsgs"] == 9
    assert (found.same, found.left) == (1, ("queue else",))


def test_a_new_destination_says_itself_what_its_template_says_otherwise() -> None:
    wanted = made(templates={"t": {"maxNumMsgs": 5, "expirationPolicy": "Discard"}}, queues={"a": {"template": "t"}})
    _, create, update = plan(Definitions(), wanted, PLACE).steps
    assert create.args["attributes"] == {"template": "t", "maxNumMsgs": -1, "expirationPolicy": "Default"}
    assert update.args["changes"] == {"expirationPolicy": "Default"}


def test_a_quota_is_raised_before_and_lowered_after_its_destinations() -> None:
    now = made(quotas={"q": {"MessagesMaximum": 5, "BytesMaximum": 9}}, queues={"a": {"maxNumMsgs": 1}})
    wanted = made(quotas={"q": {"MessagesMaximum": 9, "BytesMaximum": 5}}, queues={"a": {"maxNumMsgs": 2}})
    steps = plan(now, wanted, PLACE).steps
    assert [(step.name, dict(step.changes)) for step in steps] == [
        ("q", {"MessagesMaximum": (5, 9)}),
        ("a", {"maxNumMsgs": (1, 2)}),
        ("q", {"BytesMaximum": (9, 5)}),
    ]


def test_what_cannot_be_done_says_why_and_does_not_hold_up_the_rest() -> None:
    now = made(
        queues={"a": {"destinationKeys": "x"}},
        quotas={"q": {"Shared": False}},
        topics={"t": {}},
        subscriptions=[{"name": "s", "topic": "t", "selector": "x"}],
    )
    wanted = made(
        queues={"a": {}, "b": {"template": "t"}, "auto": {}},
        quotas={"q": {}},
        topics={"t": {}},
        subscriptions=[{"name": "s", "topic": "t"}],
        agents={"f": {"queue": "a", "to": "c/a"}},
    )
    found = plan(now, wanted, KindPlace(DEFAULTS, {"b1": CONFIGURED}, {("queue", "auto")}, agents=False))
    assert {step.name: step.blocked.partition(":")[0] for step in found.steps} == {
        "q": "Shared is fixed when a quota is created",
        "a": "fixed when a destination is created",
        "b": "there is no template 't', here or among these definitions",
        "auto": "it was created automatically and is in use",
        "s": NO_PRUNE,
        "f": "agents are of clusters, and this broker is alone",
    }
    assert all(not step.verb for step in found.steps)
    assert found.after == now
    pruned = plan(
        made(subscriptions=[{"name": "s", "topic": "t", "selector": "x"}]),
        made(subscriptions=[{"name": "s", "topic": "t"}]),
        PLACE,
        prune=True,
    )
    assert words(pruned.steps) == ["destroy subscription s", "create subscription s"]


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"queues": {"a": {"errorDestination": "b"}, "b": {"errorDestination": "a"}}}, "circle, a to b to a"),
        ({"queues": {"a": {"errorDestination": "a"}}}, "circle"),
        ({"queues": {"a": {"quota": "q"}}}, "queue 'a': there is no quota 'q', here or among"),
        ({"templates": {"t": {"quota": "q"}}}, "template 't': there is no quota 'q'"),
        ({"subscriptions": [{"name": "s", "topic": "t"}]}, "subscription s: its topic 't' is not among these"),
        ({"queues": {"a": {"quota": "kept"}}}, "quota 'kept' is not among these definitions, and would be destroyed"),
    ],
)
def test_definitions_that_contradict_each_other_are_refused(wanted: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        plan(made(quotas={"kept": {}}, topics={"t": {}}), made(**wanted), PLACE, prune=True)


def test_a_property_with_the_value_of_the_configuration_is_no_change() -> None:
    assert plan(Definitions(), made(properties={"imq.log.level": "INFO"}), PLACE).steps == ()
    now = made(properties={"imq.log.level": "ERROR", "imq.message.expiration.interval": 5})
    (step,) = plan(now, made(properties={"imq.log.level": "INFO"}), PLACE).steps
    assert step.args == {"properties": {"imq.log.level": "INFO"}}
    (step,) = plan(now, made(), PLACE, prune=True).steps
    assert step.args == {"properties": CONFIGURED}


# ---- any definitions


def of_users(**users: dict[str, Any]) -> Definitions:
    return made(users={name: {"verifier": SCRAM, **fields} for name, fields in users.items()})


def test_what_one_broker_has_alone_is_changed_there_and_what_all_have_everywhere() -> None:
    now = made(properties={"imq.log.level": "ERROR"}, brokers={"b2": {"imq.message.expiration.interval": 5}})
    wanted = made(properties={"imq.log.level": "WARNING"}, brokers={"b1": {"imq.message.expiration.interval": 7}})
    found = plan(now, wanted, TWO)
    assert [(step.name, dict(step.changes), dict(step.args)) for step in found.steps] == [
        ("broker", {"imq.log.level": ("ERROR", "WARNING")}, {"properties": {"imq.log.level": "WARNING"}}),
        (
            "b1",
            {"imq.message.expiration.interval": (60, 7)},
            {"properties": {"imq.message.expiration.interval": 7}, "broker": "b1"},
        ),
    ]
    assert (found.left, found.same) == (("properties b2",), 0)
    pruned = plan(now, wanted, TWO, prune=True)
    assert pruned.after.brokers == {"b1": {"imq.message.expiration.interval": 7}}
    assert plan(pruned.after, wanted, TWO, prune=True).steps == ()


def test_a_broker_may_have_another_value_than_all_others() -> None:
    wanted = made(properties={"imq.log.level": "ERROR"}, brokers={"b2": {"imq.log.level": "INFO"}})
    found = plan(Definitions(), wanted, TWO)
    assert [(step.name, dict(step.args["properties"])) for step in found.steps] == [("b1", {"imq.log.level": "ERROR"})]
    assert plan(found.after, wanted, TWO).steps == plan(found.after, wanted, TWO, prune=True).steps == ()


def test_what_a_broker_that_is_down_has_is_not_said_to_be_as_wanted() -> None:
    place = KindPlace(DEFAULTS, {"b1": CONFIGURED}, down=("b3",), users=True)
    now = made(properties={"imq.log.level": "ERROR"})
    (step,) = plan(now, made(properties={"imq.log.level": "ERROR"}), place).steps
    assert (step.kind, step.name, step.blocked.startswith("the broker is down")) == ("properties", "b3", True)
    assert plan(now, made(), place).steps == ()
    assert [step.name for step in plan(now, made(), place, prune=True).steps if step.blocked] == ["b3", "b3"]
    whole = KindPlace(DEFAULTS, {"b1": CONFIGURED}, down=("b3",))
    exported = definitions_of({"raybroker": {"definitions": 1, "missing": ["b3"]}}, DEFAULTS)
    assert plan(Definitions(), exported, whole, prune=True).steps == ()
    (step,) = plan(Definitions(), of_users(ann={}), place).steps[1:]
    assert (step.kind, step.name, bool(step.blocked)) == ("users", "b3", True)


def test_a_broker_that_is_not_there_is_named() -> None:
    (step,) = plan(Definitions(), made(brokers={"b9": {"imq.log.level": "ERROR"}}), TWO).steps
    assert (step.name, step.blocked) == ("b9", "there is no broker 'b9' here; there are b1, b2")
    together = KindPlace(DEFAULTS, {"b1": CONFIGURED}, together=("imq.autocreate.queue",))
    with pytest.raises(ConfigError, match=r"brokers, b1: imq.autocreate.queue has to be the same on all brokers"):
        plan(Definitions(), made(brokers={"b1": {"imq.autocreate.queue": False}}), together)


def test_pauses_come_after_their_destinations_and_go_with_them() -> None:
    paused = made(queues={"a": {}}, pauses=[{"type": "queue", "name": "a", "which": "consumers"}])
    up = plan(Definitions(), paused, PLACE)
    assert words(up.steps) == ["create queue a", "create pause queue a consumers"]
    assert up.steps[1].args == {"type": "queue", "name": "a", "which": "consumers"}
    assert words(plan(paused, Definitions(), PLACE, prune=True).steps) == ["destroy queue a"]
    down = plan(paused, made(queues={"a": {}}), PLACE, prune=True)
    assert (words(down.steps), down.steps[0].verb) == (["destroy pause queue a consumers"], "resume_destination")
    assert plan(paused, made(queues={"a": {}}), PLACE).left == ("pause queue a consumers",)


def test_a_pause_of_what_is_not_there_or_goes_is_refused_and_one_of_what_was_made_automatically_is_let_be() -> None:
    lone = made(pauses=[{"type": "queue", "name": "a", "which": "consumers"}])
    (step,) = plan(Definitions(), lone, PLACE).steps
    assert "there is no queue 'a'" in step.blocked
    with pytest.raises(ConfigError, match="pause of queue 'a': the queue is not among these definitions"):
        plan(made(queues={"a": {}}), lone, PLACE, prune=True)
    automatic = KindPlace(DEFAULTS, {"b1": CONFIGURED}, {("queue", "a")})
    assert words(plan(Definitions(), lone, automatic).steps) == ["create pause queue a consumers"]
    found = plan(lone, Definitions(), automatic, prune=True)
    assert (found.steps, found.left, plan(lone, lone, automatic).steps) == ((), (), ())


def test_users_are_made_changed_and_deleted_and_their_verifiers_never_shown() -> None:
    now, wanted = of_users(ann={}, bob={}, cid={}), of_users(ann={"verifier": OTHER}, bob={}, eve={"group": "admin"})
    found = plan(now, wanted, TWO, prune=True)
    assert words(found.steps) == ["update user ann", "create user eve", "destroy user cid"]
    assert dict(found.steps[0].changes) == {"verifier": ("(hidden)", "(another, hidden)")}
    assert not any(SCRAM in str(step.changes) or OTHER in str(step.changes) for step in found.steps)
    assert found.steps[1].args == {"name": "eve", "verifier": SCRAM, "group": "admin", "active": True}
    assert plan(now, wanted, TWO).left == ("user cid",)
    assert plan(now, wanted, PLACE, prune=True).after.users == now.users, "nobody asked for users"


def test_a_group_stays_and_one_user_is_anonymous() -> None:
    (step,) = plan(of_users(ann={}), of_users(ann={"group": "admin"}), TWO).steps
    assert "the group of a user, user, stays" in step.blocked
    nobody, other = of_users(a={"group": "anonymous"}), of_users(b={"group": "anonymous"})
    (step,) = plan(nobody, other, TWO).steps
    assert step.blocked == "group anonymous holds one user, and has 'a'"
    assert words(plan(nobody, other, TWO, prune=True).steps) == ["destroy user a", "create user b"]


def test_a_user_whom_brokers_have_differently_is_made_alike() -> None:
    now = Definitions(users={"ann": {}})
    (step,) = plan(now, of_users(ann={}), TWO).steps
    assert (step.action, step.verb, step.blocked) == ("update", "set_user", "")


NAMES = ("a", "b", "c")


@st.composite
def definitions(draw: Any) -> Definitions:
    """Such as a broker could have: error destinations lead from the first name in a drawn order to later ones."""

    def table(entries: Any) -> dict[str, Any]:
        return dict(draw(st.dictionaries(st.sampled_from(NAMES), entries, max_size=3)))

    quotas = table(st.fixed_dictionaries({}, optional={"MessagesMaximum": st.integers(-1, 5)}))
    named = st.sampled_from(["", *quotas])
    attributes = {
        "maxNumMsgs": st.integers(-1, 3),
        "quota": named,
        "useDMQ": st.booleans(),
        "expirationPolicy": st.sampled_from(["Default", "Discard"]),
    }
    templates = table(st.fixed_dictionaries({}, optional=attributes))
    template = {"template": st.sampled_from([*templates])} if templates else {}
    queues = table(st.fixed_dictionaries({}, optional={**attributes, **template}))
    order = draw(st.permutations(NAMES))
    for place, name in enumerate(order[:-1]):
        if name in queues and draw(st.booleans()):
            queues[name]["errorDestination"] = draw(st.sampled_from(order[place + 1 :]))
    if draw(st.booleans()):
        queues["mq.sys.dmq"] = {"maxNumMsgs": draw(st.integers(1, 3))}
    policies = table(
        st.fixed_dictionaries(
            {
                "pattern": st.sampled_from([">", "a.*"]),
                "attributes": st.fixed_dictionaries(
                    {"useDMQ": st.booleans()}, optional={"maxNumMsgs": st.integers(-1, 3)}
                ),
            },
            optional={"priority": st.integers(0, 2), "operator": st.booleans()},
        )
    )
    topics = table(st.fixed_dictionaries({}, optional={**attributes, **template}))
    subscriptions = draw(
        st.dictionaries(
            st.tuples(st.sampled_from(["", "me"]), st.sampled_from(NAMES)),
            st.sampled_from(["auto", *topics]),
            max_size=3,
        )
    )
    levels = st.fixed_dictionaries({}, optional={"imq.log.level": st.sampled_from(["ERROR", "WARNING"])})
    properties, brokers = shared_properties({"b1": draw(levels), "b2": draw(levels)})
    pauses = [
        {"type": type_, "name": name, "which": which}
        for type_, table_ in (("queue", queues), ("topic", topics))
        for name in table_
        if name != "mq.sys.dmq"
        for which in draw(st.sets(st.sampled_from(["producers", "consumers"])))
    ]
    users = {
        name: {
            "verifier": verifier,
            "group": {"a": "admin", "b": "user", "c": "anonymous"}[name],
            "active": draw(st.booleans()),
        }
        for name, verifier in table(st.sampled_from([SCRAM, OTHER])).items()
    }
    return made(
        properties=properties,
        brokers=brokers,
        pauses=pauses,
        users=users,
        quotas=quotas,
        templates=templates,
        queues=queues,
        policies=policies,
        topics=topics,
        subscriptions=[{"client_id": one, "name": name, "topic": on} for (one, name), on in subscriptions.items()],
        agents=table(st.fixed_dictionaries({"queue": st.sampled_from(NAMES), "to": st.just("c/x")})),
    )


def leads_back(queues: dict[str, Any]) -> bool:
    def end(name: str, steps: int) -> bool:
        after = queues.get(name, {}).get("errorDestination")
        return bool(after) and (steps > len(queues) or end(after, steps + 1))

    return any(end(name, 0) for name in queues)


@given(definitions())
def test_nothing_leads_from_definitions_to_themselves(some: Definitions) -> None:
    for prune in (False, True):
        found = plan(some, definitions_of(plain(some), DEFAULTS), TWO, prune=prune)
        assert (found.steps, found.left, found.after) == ((), (), some)


@given(definitions(), definitions())
def test_steps_lead_from_any_definitions_to_any_others(now: Definitions, wanted: Definitions) -> None:
    before = now.copy()
    found = plan(now, wanted, TWO, prune=True)
    blocked = {step.name for step in found.steps if step.blocked}
    for section in (
        "properties",
        "quotas",
        "templates",
        "policies",
        "topics",
        "queues",
        "subscriptions",
        "agents",
        "brokers",
        "pauses",
        "users",
    ):
        have, want = getattr(found.after, section), getattr(wanted, section)
        if section in ("queues", "topics"):
            have, want = ({k: v for k, v in one.items() if k not in blocked} for one in (have, want))
        assert have == want, section
    assert now == before
    assert all(step.blocked.startswith("fixed when a destination") for step in found.steps if step.blocked)
    again = plan(found.after, wanted, TWO, prune=True)
    assert [step for step in again.steps if not step.blocked] == []


@given(definitions(), definitions())
def test_without_pruning_what_is_not_wanted_stays(now: Definitions, wanted: Definitions) -> None:
    assume(not leads_back({**now.queues, **wanted.queues}))
    found = plan(now, wanted, TWO)
    assert not any(step.action == "destroy" and step.kind != "agent" for step in found.steps)
    for section in ("quotas", "templates", "policies", "queues", "topics", "subscriptions", "agents"):
        assert {*getattr(now, section)} <= {*getattr(found.after, section)}
