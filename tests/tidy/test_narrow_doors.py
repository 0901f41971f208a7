"""Parts have narrow doors: how many files reach into a class, and how many of its members they use, only shrinks.

The class of a variable is read from annotations: of arguments, of attributes, and of attributes that an annotated
argument is assigned to.  A member is reached where another file takes an attribute of such a variable.  Where the
annotation is a Protocol, the member is reached in every class that has all of the Protocol's members.  Classes that few
files reach, or by few members, stand in no table.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.tidy.protocols import protocols
from tests.tidy.source import Sources, nodes, package, tree_of

FILES_FREE, MEMBERS_FREE = 4, 12
"""A class that no more files reach, or no more members of, needs no entry."""


class Reach(NamedTuple):
    """``files`` outside the class's own that use members of it; ``members`` that they use, all together."""

    files: int
    members: int


TABLE: dict[str, Reach] = {
    "raybroker.broker.broker.Broker": Reach(5, 29),
    "raybroker.broker.destinations.destination_registry.Registry": Reach(14, 16),
    "raybroker.broker.services.service_administration.ServiceAdministration": Reach(5, 13),
    "raybroker.client.connection.channel.Channel": Reach(10, 16),
    "raybroker.client.connection.connection.ConnectionCore": Reach(20, 22),
    "raybroker.client.consumer.message.Message": Reach(11, 21),  # serve uses it as applications do, by public names.
    "raybroker.client.io.io_thread.IoThread": Reach(14, 16),
    "raybroker.client.producer.producer.ProducerCore": Reach(4, 13),
    "raybroker.client.session.session.SessionCore": Reach(13, 45),
    "raybroker.cluster.change_record.ChangeRecord": Reach(6, 13),
    "raybroker.cluster.member_state.MemberContext": Reach(8, 28),
    "raybroker.core.admission.pool_share.PoolShare": Reach(4, 13),
    "raybroker.core.delivery.consumers.Consumer": Reach(15, 30),
    "raybroker.core.delivery.delivery_queue.DeliveryQueue": Reach(22, 27),
    "raybroker.core.destination.Destination": Reach(47, 28),
    "raybroker.core.queue.Queue": Reach(14, 22),
    "raybroker.core.topic.Topic": Reach(14, 22),
    "raybroker.engine.sessions.session.Session": Reach(8, 19),
    "raybroker.hosting.block_codec.WireCodec": Reach(15, 15),
    "raybroker.services.listening.listener.ServiceListener": Reach(3, 14),
    "raybroker.store.journal.journal.Journal": Reach(11, 15),
    "raybroker.store.journal.segment.Segment": Reach(5, 19),
    "raybroker.store.journal.segment.SegmentFiles": Reach(6, 20),
    "raybroker.store.memory.MemoryStore": Reach(11, 14),
    "raybroker.store.sql.store.SqlStore": Reach(11, 14),
}
"""Class → its reach.  No entry is ever added or raised; a class gets a narrower door, or one file that composes it."""
PUBLIC = ("raybroker/model/", "raybroker/config/", "raybroker/client/admin/")
"""Values that every layer may speak of, and the public face of administration, which has a method for each verb."""


def classes(sources: Sources) -> dict[str, str]:
    """Dotted name of a class → its file; protocols and values (tuples, enums, frozen dataclasses) are left out."""
    return {
        f"{_module(path)}.{node.name}": path
        for path, source in sources.items()
        if not path.startswith(PUBLIC)
        for node in tree_of(source).body
        if isinstance(node, ast.ClassDef) and not _is_value(node)
    }


def _module(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def _visible(path: str, source: str, homes: Mapping[str, str]) -> dict[str, str]:
    """The name of a class as a file writes it → its dotted name."""
    known = {
        node.name: f"{_module(path)}.{node.name}" for node in tree_of(source).body if isinstance(node, ast.ClassDef)
    }
    for node in nodes(source):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name, full = alias.asname or alias.name, f"{node.module}.{alias.name}"
                known[name] = full
                known |= {f"{name}{home[len(full) :]}": home for home in homes if home.startswith(f"{full}.")}
    return {name: full for name, full in known.items() if full in homes}


def _is_value(node: ast.ClassDef) -> bool:
    bases = {base.id if isinstance(base, ast.Name) else getattr(base, "attr", "") for base in node.bases}
    frozen = any("frozen=True" in ast.unparse(one) for one in node.decorator_list)
    return frozen or bool(bases & {"NamedTuple", "Protocol", "StrEnum", "IntEnum", "Enum", "Exception", "TypedDict"})


def reaches(sources: Sources) -> dict[str, Reach]:
    """Every class of the package that other files reach into."""
    homes, behind = classes(sources), protocols(sources)
    names = homes | dict.fromkeys(behind, "")
    used: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for path, source in sources.items():
        for annotated, member in _members(source, _visible(path, source, names)):
            for owner in behind.get(annotated, (annotated,)):
                if homes.get(owner, path) != path:
                    used[owner].add((path, member))
    return {
        name: Reach(len({path for path, _ in found}), len({member for _, member in found}))
        for name, found in used.items()
    }


def _members(source: str, visible: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(class, member) of every attribute taken of something annotated as that class."""
    attributes = _attributes(source, visible)
    for function in nodes(source):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        local = dict(_arguments(function, visible))
        inside = tuple(ast.walk(function))
        for node in inside:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                kind = _class_of(node.annotation, visible)
                local |= {node.target.id: kind} if kind else {}
        for node in inside:
            if isinstance(node, ast.Attribute):
                base = node.value
                if isinstance(base, ast.Name) and base.id in local:
                    yield local[base.id], node.attr
                elif isinstance(base, ast.Attribute) and ast.unparse(base) in attributes:
                    yield attributes[ast.unparse(base)], node.attr


def _attributes(source: str, visible: Mapping[str, str]) -> dict[str, str]:
    """``self.x`` → its class, where an annotation or an annotated argument says it."""
    found: dict[str, str] = {}
    for node in nodes(source):
        if isinstance(node, ast.ClassDef):
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    kind = _class_of(line.annotation, visible)
                    found |= {f"self.{line.target.id}": kind} if kind else {}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            local = dict(_arguments(node, visible))
            for line in ast.walk(node):
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Attribute):
                    kind = _class_of(line.annotation, visible)
                    found |= {ast.unparse(line.target): kind} if kind else {}
                elif isinstance(line, ast.Assign) and isinstance(line.value, ast.Name) and line.value.id in local:
                    for target in line.targets:
                        if isinstance(target, ast.Attribute):
                            found[ast.unparse(target)] = local[line.value.id]
    return found


def _arguments(
    function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, visible: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    given = function.args
    for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs):
        kind = _class_of(argument.annotation, visible)
        if kind:
            yield argument.arg, kind


def _class_of(annotation: ast.expr | None, visible: Mapping[str, str]) -> str:
    """The one class of the package that an annotation names outside brackets; "" for none or several."""
    if annotation is None:
        return ""
    text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
    found = [visible[name] for name in re.split(r"\s*\|\s*", str(text)) if name in visible]
    return found[0] if len(found) == 1 else ""


def violations(sources: Sources, table: Mapping[str, Reach]) -> Iterator[str]:
    found = reaches(sources)
    for name, reach in sorted(found.items()):
        allowed = table.get(name, Reach(FILES_FREE, MEMBERS_FREE))
        if name not in table and (reach.files <= FILES_FREE or reach.members <= MEMBERS_FREE):
            continue
        if reach.files > allowed.files or reach.members > allowed.members:
            yield f"{name}: {reach.files} files reach {reach.members} of its members; allowed are {tuple(allowed)}"
        elif reach != allowed:
            yield f"{name} is reached by {reach.files} files, {reach.members} members: tighten its entry"
    for name in sorted(set(table) - set(found)):
        yield f"{name} is reached by nobody: remove it from the table"


def test_doors_only_get_narrower() -> None:
    assert list(violations(package(), TABLE)) == []


def test_members_are_found_by_annotations_of_arguments_and_attributes() -> None:
    centre = "class Centre:\n    pass\n"
    part = """
from raybroker.a import Centre
from raybroker import a

class Part:
    def __init__(self, centre: Centre) -> None:
        self._centre = centre
        centre.first()

    def work(self) -> None:
        self._centre.second += 1

def named(one: "a.Centre | None", other: Other) -> None:
    one.third, other.fourth
"""
    found = reaches({"raybroker/a.py": centre, "raybroker/b.py": part})
    assert found == {"raybroker.a.Centre": Reach(1, 3)}


def test_members_reached_through_a_protocol_count_for_the_classes_that_have_them_all() -> None:
    port = """
from typing import Protocol

class First(Protocol):
    def first(self, one: int) -> None: ...

class Port(First, Protocol):
    second: int
"""
    centre = """
class Base:
    def first(self, one: int, two: int = 0) -> None:
        self.second = one

class Whole(Base):
    pass

class Half:
    def first(self, one: int) -> None: ...

class Other:
    second: int
    async def first(self, one: int) -> None: ...
"""
    part = "from raybroker.port import Port\ndef f(one: Port) -> None:\n    one.first(one.second)\n"
    found = reaches({"raybroker/port.py": port, "raybroker/a.py": centre, "raybroker/b.py": part})
    assert found == {"raybroker.a.Base": Reach(1, 2), "raybroker.a.Whole": Reach(1, 2)}


def test_a_wide_door_is_found_and_a_narrower_one_is_noted() -> None:
    wide = "from raybroker.centre import Centre\ndef f(one: Centre) -> None:\n"
    wide += "".join(f"    one.m{number}\n" for number in range(MEMBERS_FREE + 1))
    sources = {"raybroker/centre.py": "class Centre:\n    pass\n"}
    sources |= {f"raybroker/p{number}.py": wide for number in range(FILES_FREE + 1)}
    name = "raybroker.centre.Centre"
    assert list(violations(sources, {})) == [f"{name}: 5 files reach 13 of its members; allowed are (4, 12)"]
    assert list(violations(sources, {name: Reach(5, 13)})) == []
    narrower = f"{name} is reached by 5 files, 13 members: tighten its entry"
    assert list(violations(sources, {name: Reach(6, 13)})) == [narrower]
    assert list(violations({}, {name: Reach(6, 13)})) == [f"{name} is reached by nobody: remove it from the table"]
