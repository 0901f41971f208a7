"""The table of verbs: each has an implementation that takes and answers what is declared, and a command."""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, get_type_hints

import pytest

from raybroker.admin.verb import Asynchronous, Blocking, By, Verb, declared_in, verb
from raybroker.admin.verb_types import Name, PageMax, Start
from raybroker.admin.verbs import VERBS, AdminVerbs, ManagerVerbs
from raybroker.broker.broker import Broker
from raybroker.broker.broker_properties import ClusterProperties, Properties
from raybroker.broker.clients.connection_verbs import ConnectionVerbs
from raybroker.broker.cluster.cluster_admin import ClusterAdmin
from raybroker.broker.cluster.cluster_management import ClusterItself
from raybroker.broker.cluster.cluster_pauses import Pausing
from raybroker.broker.cluster.cluster_why import ClusterWhy
from raybroker.broker.cluster.draining import Draining
from raybroker.broker.cluster.forwarding_agents import Agents
from raybroker.broker.cluster.takeovers import StoreWatch
from raybroker.broker.copies.placing import Placing
from raybroker.broker.definitions.definition_transfer import Transfer
from raybroker.broker.definitions.definitions import RecordedDestinations, RecordedNamed, RecordedSubscriptions
from raybroker.broker.definitions.definitions_on_demand import DefinitionsOnDemand
from raybroker.broker.definitions.drained_nodes import DrainedNodes
from raybroker.broker.definitions.policies import Policies
from raybroker.broker.definitions.quotas import Quotas
from raybroker.broker.definitions.templates import Templates
from raybroker.broker.destinations.destinations import Destinations
from raybroker.broker.destinations.message_administration import Messages
from raybroker.broker.destinations.schedules import ScheduleVerbs
from raybroker.broker.destinations.subscriptions import Subscriptions
from raybroker.broker.destinations.transactions import TransactionAdministration
from raybroker.broker.ending import ClusterEnding, Ending
from raybroker.broker.observing.alone import NotShared, OnlyBroker
from raybroker.broker.observing.broker_metrics import Measuring
from raybroker.broker.observing.health import ClusterHealth, HealthChecks
from raybroker.broker.observing.why import WhyAdministration
from raybroker.broker.services.service_administration import ServiceAdministration
from raybroker.broker.services.user_administration import ClusterUsers, UserVerbs
from raybroker.cli.objects.table import COMMANDS
from raybroker.cli.plain import verb_of
from raybroker.client.admin.admin import Admin, AsyncAdmin
from raybroker.errors import BrokerError, ConfigError, InvalidDestinationError
from raybroker.hosting.host_port import ROLES, HostPort
from tests.tidy.source import read, tree_of

OF_BROKER = (
    Broker,
    ServiceAdministration,
    Destinations,
    Subscriptions,
    ScheduleVerbs,
    TransactionAdministration,
    Messages,
    Templates,
    Quotas,
    Policies,
    DrainedNodes,
    Properties,
    Measuring,
    Ending,
    DefinitionsOnDemand,
    HealthChecks,
    OnlyBroker,
    NotShared,
    UserVerbs,
    ConnectionVerbs,
    WhyAdministration,
)
OF_CLUSTER = (
    ClusterAdmin,
    RecordedDestinations,
    Placing,
    RecordedSubscriptions,
    RecordedNamed,
    ClusterItself,
    StoreWatch,
    Draining,
    Agents,
    Pausing,
    ClusterProperties,
    ClusterEnding,
    ClusterHealth,
    ClusterWhy,
    Transfer,
    ClusterUsers,
    ConnectionVerbs,
)
CLUSTER_ALONE = frozenset(
    {
        "reload_cluster",
        "change_master",
        "backup_record",
        "create_forwarding",
        "destroy_forwarding",
        "list_forwardings",
        "query_forwarding",
    }
)
"""What means nothing to a broker without a cluster."""
NO_COMMAND = {
    "decide_transaction": "transaction managers say xa.commit",
    "forget_transaction": "transaction managers say xa.forget",
    "list_users": "usermgr reads the file of users",
    "set_user": "usermgr writes the file of users",
    "destroy_user": "usermgr writes the file of users",
}
"""Verb → why no command calls it."""


def fault(declared: Verb[..., Any], made: Callable[..., Any]) -> str | None:
    """What differs between a declaration and an implementation: arguments, defaults, or the answer."""
    wanted = {name: _default(parameter) for name, parameter in declared.signature.parameters.items()}
    found = {name: _default(parameter) for name, parameter in inspect.signature(made).parameters.items()}
    if any(found.get(name, missing) != default for name, default in wanted.items()):
        return f"{made.__qualname__} takes {found}; declared are {wanted}"
    answer, promised = get_type_hints(made)["return"], get_type_hints(declared.declared)["return"]
    return None if answer == promised else f"{made.__qualname__} answers {answer}; declared is {promised}"


missing = object()


def _default(parameter: inspect.Parameter) -> Any:
    return parameter.empty if parameter.kind is parameter.VAR_KEYWORD else parameter.default


def implementations(declared: Verb[..., Any], kinds: tuple[type, ...]) -> list[Callable[..., Any]]:
    return [getattr(kind, declared.name) for kind in kinds if hasattr(kind, declared.name)]


def of_host(declared: Verb[..., Any]) -> Callable[..., Any]:
    """The method of a host's role that the declaration names."""
    role, method = declared.host.split(".")
    assert method in ROLES[role]
    found: Callable[..., Any] = getattr(get_type_hints(HostPort)[role], method)
    return found


@pytest.mark.parametrize("declared", VERBS.values(), ids=lambda declared: declared.name)
def test_a_verb_is_implemented_once_by_each_that_carries_it_out(declared: Verb[..., Any]) -> None:
    of_broker, of_cluster = implementations(declared, OF_BROKER), implementations(declared, OF_CLUSTER)
    if declared.host:
        assert (callable(of_host(declared)), of_broker) == (True, [])
    else:
        assert len(of_broker) == (declared.name not in CLUSTER_ALONE)
    assert len(of_cluster) == (declared.by is By.CLUSTER)
    assert [found for made in (*of_broker, *of_cluster) if (found := fault(declared, made))] == []


@pytest.mark.parametrize("declared", [declared for declared in VERBS.values() if declared.host], ids=lambda v: v.name)
def test_a_host_takes_the_arguments_of_its_verbs_in_the_order_of_their_declaration(declared: Verb[..., Any]) -> None:
    made = of_host(declared)
    assert list(inspect.signature(made).parameters)[1:] == list(declared.signature.parameters)
    assert get_type_hints(made)["return"] in (get_type_hints(declared.declared)["return"], dict[str, Any])


def test_a_verb_is_called_by_a_command_or_excused() -> None:
    called = {
        node.attr
        for source in read("raybroker/cli").values()
        for node in ast.walk(tree_of(source))
        if isinstance(node, ast.Attribute)
    }
    assert set(VERBS) - called - {verb_of(row.words).name for row in COMMANDS} == set(NO_COMMAND)


def test_administrators_have_a_described_method_for_each_verb_of_theirs() -> None:
    assert list(VERBS) == [*declared_in(AdminVerbs), *declared_in(ManagerVerbs)]
    for name in declared_in(AdminVerbs):
        method = getattr(Admin(lambda verb, args: None), name)
        assert (method.__name__, bool(method.__doc__)) == (name, True)
        declared = inspect.signature(getattr(Admin, name)).parameters
        assert ["self", *inspect.signature(method).parameters] == list(declared)


class Sample:
    @verb(By.BROKER)
    def paint(self, /, name: Name, *, max: PageMax = 3, start: Start = None, **attributes: Any) -> int:
        """Paint something."""


class Faces:
    class Blocking(Sample, Blocking):
        def __init__(self) -> None:
            self._call = lambda verb, args: (verb, args)

    class Asynchronous(Sample, Asynchronous):
        def __init__(self) -> None:
            async def call(verb: str, args: dict[str, Any]) -> Any:
                return verb, args

            self._call: Callable[[str, dict[str, Any]], Awaitable[Any]] = call


def test_a_declared_method_carries_its_arguments_by_name() -> None:
    expected = ("paint", {"name": "wall", "max": 3, "start": [1, 2], "attributes": {"self": 5}})
    assert Faces.Blocking().paint("wall", start=(1, 2), self=5) == expected

    async def work() -> Any:
        return await Faces.Asynchronous().paint("wall", start=(1, 2), self=5)

    assert asyncio.run(work()) == expected


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda face: face.paint(5), InvalidDestinationError, r"name=5; it is a text"),
        (lambda face: face.paint("wall", max=0), ConfigError, r"max=0; it is a whole number from 1"),
        (lambda face: face.paint(), TypeError, r"paint\(\): missing a required argument: 'name'"),
        (lambda face: face.paint("wall", 3), TypeError, r"paint\(\): too many positional"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_sent(
    call: Callable[[Any], Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        call(Faces.Blocking())


def test_an_implementation_that_differs_is_found() -> None:
    class Part:
        def paint(self, name: str, colour: str) -> int: ...  # type: ignore[empty-body]

    class Other:
        def paint(self, name: str, max: int = 3, start: Any = None, *, attributes: Any) -> str: ...  # type: ignore[empty-body]

    (declared,) = declared_in(Sample).values()
    assert "paint takes" in str(fault(declared, Part.paint))
    assert "answers <class 'str'>" in str(fault(declared, Other.paint))


@pytest.mark.parametrize("name", VERBS)
def test_every_argument_is_checked_or_known_to_be_checked_where_it_is_used(name: str) -> None:
    unchecked = {argument for argument, check in VERBS[name].arguments.items() if check is None}
    assert unchecked <= {"start"}


def test_none_is_allowed_where_it_is_the_default_and_nowhere_else() -> None:
    VERBS["list_destinations"].check({"type": None})
    with pytest.raises(BrokerError, match="type=None; it is 'queue' or 'topic'"):
        VERBS["query_destination"].check({"type": None})


def test_asynchronous_and_blocking_faces_offer_the_same() -> None:
    assert {*dir(Admin)} == {*dir(AsyncAdmin)}
