"""A class has few attributes: a group of them that belongs together is a class of its own, with few methods. How many
have more, and how many more, only shrinks."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tests.tidy.source import Sources, package, tree_of

MOST = 15
TABLE: dict[str, int] = {
    "raybroker.broker.broker.Broker": 19,  # it composes the parts of a broker
    "raybroker.broker.cluster.cluster_shell.Clustering": 17,
    "raybroker.client.consumer.prefetch.credit_pool.CreditPool": 17,  # one rule over all of it
    "raybroker.client.consumer.prefetch.prefetch_buffer.PrefetchBuffer": 21,  # the state of a receive
    "raybroker.client.producer.members.unit_routing.RoutedProducer": 17,
    "raybroker.client.producer.producer_state.SendBatch": 20,  # the columns of a block, and who waits for it
    "raybroker.cluster.member_state.MemberContext": 23,
    "raybroker.cluster.shared_table.Sharer": 19,
    "raybroker.core.admission.pool_share.PoolShare": 20,
    "raybroker.core.counters.Counters": 19,  # a row of counts
    "raybroker.core.delivery.consumers.Consumer": 27,
    "raybroker.core.delivery.delivery_queue.DeliveryQueue": 18,
    "raybroker.core.destination.Destination": 20,
    "raybroker.core.durable.recovery.DestinationRecovery": 17,
    "raybroker.engine.host.Host": 24,  # it composes the parts of a host
    "raybroker.engine.measuring.destination_meter.DestinationMeter": 18,  # a row of measurements
    "raybroker.engine.memory.memory_protection.MemoryProtection": 20,
    "raybroker.engine.memory.pager.Pager": 20,
    "raybroker.engine.path.executor.Executor": 16,
    "raybroker.engine.sessions.attachments.Attachment": 16,
    "raybroker.hosting.host_service.HostService": 19,
    "raybroker.model.blocks.block.Block": 19,  # the columns of a block
    "raybroker.model.settings.settings.DestinationAttributes": 67,  # a row, with a field for each attribute
    "raybroker.services.listening.connection_services.ConnectionServices": 23,
    "raybroker.services.listening.listener.ServiceListener": 21,
    "raybroker.services.metrics.metrics_http.MetricsEndpoint": 17,
    "raybroker.services.native.control.Control": 22,
    "raybroker.services.native.native.NativeConnection": 19,
    "raybroker.services.native.native.NativeService": 24,
    "raybroker.services.rest.user_connection.UserConnection": 18,
    "raybroker.services.stomp.session.StompSession": 19,
    "raybroker.store.journal.journal.Journal": 21,
    "raybroker.store.journal.segment.Segment": 20,  # a row, with what its file says
    "raybroker.store.journal.segment.SegmentFiles": 16,
    "raybroker.store.sql.store.SqlStore": 22,
    "raybroker.transport.link.Link": 17,
}
"""Class → its attributes.  No entry is ever added or raised; those with a reason are one thing, and stay."""


def _attributes(node: ast.ClassDef) -> set[str]:
    """What ``__init__`` assigns to ``self``, what ``__slots__`` names, and the fields of a dataclass."""
    found: set[str] = set()
    fields = any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and one.name == "__init__":
            found |= {
                part.attr
                for part in ast.walk(one)
                if isinstance(part, ast.Attribute)
                and isinstance(part.ctx, ast.Store)
                and isinstance(part.value, ast.Name)
                and part.value.id == "self"
            }
        elif isinstance(one, ast.Assign) and any(ast.unparse(target) == "__slots__" for target in one.targets):
            found |= set(ast.literal_eval(one.value))
        elif fields and isinstance(one, ast.AnnAssign) and "ClassVar" not in ast.unparse(one.annotation):
            found.add(ast.unparse(one.target))
    return found


def large(sources: Sources) -> dict[str, int]:
    """Classes with more attributes than MOST."""
    found: dict[str, int] = {}
    for path, source in sources.items():
        for node in ast.walk(tree_of(source)):
            if isinstance(node, ast.ClassDef) and len(_attributes(node)) > MOST:
                found[f"{path.removesuffix('.py').replace('/', '.')}.{node.name}"] = len(_attributes(node))
    return found


def violations(sources: Sources, table: Mapping[str, int]) -> Iterator[str]:
    found = large(sources)
    for name in sorted({*found, *table}):
        has, allowed = found.get(name, 0), table.get(name, MOST)
        if has > allowed:
            yield f"{name} has {has} attributes; allowed are {allowed}: make a class of those that belong together"
        elif name in table and has < allowed:
            yield f"{name} has {has or 'few'} attributes: {'lower' if has else 'remove'} its entry"


def test_classes_only_get_smaller() -> None:
    assert list(violations(package(), TABLE)) == []


def test_a_large_class_is_found_however_it_is_written() -> None:
    names = [f"a{number}" for number in range(MOST + 1)]
    assigned = "\n".join(f"        self.{name}: int = 0" for name in names)
    sources = {
        "raybroker/a.py": f"class Assigned:\n    def __init__(self):\n{assigned}\n",
        "raybroker/b.py": f"class Slots:\n    __slots__ = {tuple(names)!r}\n",
        "raybroker/c.py": "@dataclass(slots=True)\nclass Fields:\n" + "".join(f"    {name}: int\n" for name in names),
    }
    assert large(sources) == {"raybroker.a.Assigned": 16, "raybroker.b.Slots": 16, "raybroker.c.Fields": 16}
    (told,) = violations({"raybroker/b.py": sources["raybroker/b.py"]}, {})
    assert told.startswith("raybroker.b.Slots has 16 attributes; allowed are 15")


def test_an_entry_that_is_too_high_or_gone_is_told() -> None:
    (told,) = violations({}, {"raybroker.a.Gone": 16})
    assert told == "raybroker.a.Gone has few attributes: remove its entry"
