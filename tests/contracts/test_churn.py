"""What comes and goes leaves nothing: objects and the entries of tables are counted before and after, in the client and
in the brokers."""

from __future__ import annotations

import gc
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import _lru_cache_wrapper
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import pytest

import raybroker as rb
from raybroker.services.clients import user_limits
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import WAIT_S
from tests.contracts.test_services import Outside

ROUNDS = 20
LEFT_MAX = ROUNDS // 2
"""So many more objects of one type, or entries of one table, may be there after a further ROUNDS rounds: what is under
way at that moment. What each round leaves is at least twice as many."""
PARTS = 3
RECORD_MAX = 600
"""So many entries the record of a cluster that has a handful of destinations may have, whatever has been."""
_RECORD: Final = "raybroker.cluster.change_record"
BOUNDED = frozenset(
    {
        "raybroker.model.blocks.record.LogEntry",
        f"{_RECORD}.Entry",
        f"{_RECORD}.Change",
        f"{_RECORD}.Change.attributes",
        f"{_RECORD}.ChangeRecord.entries",
        "raybroker.cluster.member_messages.ChangeDecided",
        "raybroker.cluster.master.AskedChange.decided",
        "raybroker.store.memory.MemoryStore._log",
        "raybroker.store.memory.MemoryStore._freed",
        "raybroker.store.journal.format.SummaryWriter._metas",
        "raybroker.services.native.guests.Guests._expected",
        "raybroker.engine.path.committer.CommitMeter._noted",
    }
)
"""They stay until the log or the segment that they are in is shortened or full, as many have come as are kept, or for a
time."""
TABLES: Final = (dict, list, set, deque, OrderedDict, WeakSet, WeakKeyDictionary, WeakValueDictionary)


def round_of(connection: Any, admin: Any, number: int) -> None:
    """Temporary destinations, queues and topics made, used and destroyed, with sessions of their own."""
    with connection.session() as session:
        for temporary in (session.temporary_queue(), session.temporary_topic()):
            with session.consumer(temporary) as consumer, session.producer(temporary) as producer:
                producer.send("reply")
                assert consumer.receive(WAIT_S) is not None
            temporary.delete()
    for kind in ("queue", "topic"):
        admin.create_destination(kind, f"{kind}{number}")
        with connection.session() as session:
            home = getattr(session, kind)(f"{kind}{number}")
            with session.consumer(home) as consumer, session.producer(home) as producer:
                producer.send("job")
                assert consumer.receive(WAIT_S) is not None
        admin.destroy_destination(kind, f"{kind}{number}")


def attributes(found: Any) -> Iterator[tuple[str, Any]]:
    """Of an object, with their names."""
    yield from list(getattr(found, "__dict__", {}).items())
    for cls in type(found).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            name = f"_{cls.__name__.lstrip('_')}{slot}" if slot.startswith("__") and not slot.endswith("__") else slot
            if name not in ("__dict__", "__weakref__") and hasattr(found, name):
                yield name, getattr(found, name)


def entries(table: Any) -> int:
    """How many a table has, with those of the tables in it."""
    inner = list(table.values() if isinstance(table, Mapping) else table)
    return len(inner) + sum(len(one) for one in inner if isinstance(one, TABLES))


def counted() -> Counter[str]:
    """Objects of our types and functions, which callbacks are, by type; entries of the tables of our modules and
    of our objects, and of caches without a bound, by their names. A table of a module is not counted with each object
    that refers to it: a few objects that are under way would look like many entries."""
    gc.collect()
    found: Counter[str] = Counter()
    of_modules: set[int] = set()
    for name, module in list(sys.modules.items()):
        if name.startswith("raybroker"):
            for attribute, table in list(vars(module).items()):
                if isinstance(table, TABLES):
                    found[f"{name}.{attribute}"] += entries(table)
                    of_modules.add(id(table))
    for one in gc.get_objects():
        cls = type(one)
        name = f"{cls.__module__}.{cls.__qualname__}"
        if name == "builtins.function" or name.startswith("raybroker."):
            found[name] += 1
        if isinstance(one, _lru_cache_wrapper) and one.cache_info().maxsize is None:
            of = f"{getattr(one, '__module__', '')}.{getattr(one, '__qualname__', '')}"
            found[f"cache of {of}"] += one.cache_info().currsize
        elif name.startswith("raybroker."):
            for attribute, table in attributes(one):
                if isinstance(table, TABLES) and id(table) not in of_modules:
                    found[f"{name}.{attribute}"] += entries(table)
    return found


def grown(work: Callable[[int], None]) -> dict[str, int]:
    """What is counted → how many more there are after each of PARTS equal parts of the work but the first, at least."""
    counts = []
    for part in range(PARTS):
        for number in range(part * ROUNDS, (part + 1) * ROUNDS):
            work(number)
        counts.append(counted())
    more = {name: min(after[name] - before[name] for before, after in pairwise(counts)) for name in counts[-1]}
    return {name: count for name, count in more.items() if count > LEFT_MAX and name not in BOUNDED}


def test_destinations_that_come_and_go_leave_nothing() -> None:
    with rb.loopback() as connection:
        admin = connection.admin()
        assert grown(lambda number: round_of(connection, admin, number)) == {}


def test_clients_outside_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that stays, and one that comes and goes in each round."""
    monkeypatch.setattr(user_limits, "KNOWN", 0)
    with ExitStack() as opened:
        outside = Outside(tmp_path, opened)
        stays = outside.connect()

        def work(number: int) -> None:
            round_of(stays, outside.admin, number)
            with rb.connect(outside.url(), username="ann", password="secret") as comes:
                round_of(comes, outside.admin, number)
                comes.session().temporary_queue()
                with comes.session() as session:
                    session.producer(f"made{number}").send("by using it")
            outside.admin.destroy_destination("queue", f"made{number}")

        assert grown(work) == {}


@pytest.mark.timeout(120)
def test_destinations_of_a_cluster_that_come_and_go_leave_nothing_and_the_record_stays_short(tmp_path: Path) -> None:
    with ClusterRig(tmp_path, 2) as rig:
        connections = [rig.connect("b1"), rig.connect("b2")]
        admins = [connection.admin() for connection in connections]
        assert grown(lambda number: round_of(connections[number % 2], admins[number % 2], number)) == {}
        admin = connections[0].admin()
        for number in range(RECORD_MAX // 2):
            admin.create_destination("queue", "again")
            admin.destroy_destination("queue", "again")
            if number % 50 == 0:
                for broker in rig.brokers.values():
                    context = broker.cluster.clustering.member
                    assert len(context.record.entries) <= RECORD_MAX
        assert all(rig.brokers[name].cluster.clustering.member.record.base_number > 0 for name in ("b1", "b2"))
