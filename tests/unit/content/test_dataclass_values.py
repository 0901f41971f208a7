"""Dataclasses as bodies: they come back as their class, without running its code or importing what a body names."""

from __future__ import annotations

import abc
import dataclasses
import decimal
import subprocess
import sys
import textwrap
from typing import Any, ClassVar

import msgpack
import pytest

from raybroker.content.bodies import OBJECT, decode_body, encode_body
from raybroker.content.msgpack_types import DATACLASS, TUPLES_MAX
from raybroker.model.errors import MessageFormatError

ran: list[str] = []
"""What code of the classes below has run."""


@dataclasses.dataclass
class Order:
    number: int
    price: Any = None
    note: str = dataclasses.field(default="", repr=False, compare=False)
    kinds: ClassVar[tuple[str, ...]] = ("a",)


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Point3(Point):
    z: Any = 0


@dataclasses.dataclass(kw_only=True)
class Rush(Order):
    by: str


@dataclasses.dataclass(frozen=True, eq=False)
class Nothing:
    pass


class Outer:
    @dataclasses.dataclass
    class Inner:
        order: Order
        many: list[Any]


@dataclasses.dataclass
class Busy:
    """Everything that could run when an instance is made."""

    level: int
    left: dataclasses.InitVar[int] = 0

    def __new__(cls, *args: Any, **named: Any) -> Busy:
        ran.append("new")
        return super().__new__(cls)

    def __post_init__(self, left: int) -> None:
        ran.append("post_init")

    def __setattr__(self, name: str, value: Any) -> None:
        ran.append("setattr")
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        ran.append("getattr")
        raise AttributeError(name)


class _Doubling:
    def __set_name__(self, owner: type, name: str) -> None:
        self.name = "_" + name

    def __get__(self, instance: Any, owner: type) -> Any:
        return 1 if instance is None else vars(instance)[self.name]

    def __set__(self, instance: Any, value: Any) -> None:
        ran.append("set")
        vars(instance)[self.name] = value


@dataclasses.dataclass
class WithSetter:
    level: int = _Doubling()  # type: ignore[assignment]


@dataclasses.dataclass
class WithFinalizer:
    level: int

    def __del__(self) -> None:
        ran.append("del")


@dataclasses.dataclass
class Failure(Exception):  # noqa: N818
    level: int


@dataclasses.dataclass
class Abstract(abc.ABC):
    level: int

    @abc.abstractmethod
    def raised(self) -> int: ...


class Plain:
    level = 1


def round_trip(body: Any) -> Any:
    return decode_body(*encode_body(body))


def named(module: Any, name: Any, fields: Any) -> bytes:
    """A body that says it is an instance of a class."""
    return bytes(msgpack.packb(msgpack.ExtType(DATACLASS, msgpack.packb([module, name, fields]))))


@pytest.mark.parametrize(
    "body",
    [
        Order(1, (decimal.Decimal("2.50"),), "x"),
        Point(1, 2),
        Point3(1, 2, Point(3)),
        Rush(number=1, by="noon"),
        Outer.Inner(Order(7), [Point(1), {"p": (Point(2), [Point3(3)])}]),
        [Order(1), Order(2)],
        {"o": Order(1)},
        (Order(1), (Point(2),)),
        {Point(1): Order(2)},
    ],
    ids=repr,
)
def test_a_dataclass_comes_back_as_its_class_wherever_it_stands(body: Any) -> None:
    assert (round_trip(body), repr(round_trip(body))) == (body, repr(body))
    assert type(round_trip(body)) is type(body)
    with pytest.raises(MessageFormatError, match="another type"):
        encode_body(body, exact=True)


def test_fields_that_do_not_compare_and_dataclasses_without_fields_come_back() -> None:
    assert round_trip(Order(1, 2, "kept")).note == "kept"
    assert type(round_trip(Nothing())) is Nothing


def test_no_code_of_the_class_runs_when_it_is_received() -> None:
    body = Busy(5)
    data = encode_body([body])
    ran.clear()
    (found,) = decode_body(*data)
    assert ran == []
    assert (type(found), vars(found)) == (Busy, {"level": 5})


@pytest.mark.parametrize("kind", [WithSetter, WithFinalizer, Failure, Abstract, Plain])
def test_a_class_that_cannot_be_filled_without_its_code_comes_back_as_a_dict(kind: type) -> None:
    ran.clear()
    assert decode_body(OBJECT, named(kind.__module__, kind.__qualname__, {"level": 3})) == {"level": 3}
    assert ran == []


HERE = __name__


@pytest.mark.parametrize(
    ("module", "name", "fields"),
    [
        ("os", "system", {"command": "true"}),
        ("os", "path.join", {}),
        ("builtins", "dict", {"number": 1}),
        ("builtins", "type", {}),
        (HERE, "ran", {}),
        (HERE, "Order.__init__", {"number": 1}),
        (HERE, "", {}),
        (HERE, "Order", {"number": 1}),
        (HERE, "Order", {"number": 1, "price": 2, "note": "", "more": 3}),
        (HERE, "Order", {"number": 1, "price": 2, "__class__": 3}),
        (HERE, "pytest.Item", {}),
        ("", "Order", {}),
        (HERE, "Nobody", {}),
        (HERE, "Outer.Inner.__class__", {}),
        ("this", "c", {}),
        (HERE, "Point", {"x": 1, "z": 2}),
    ],
)
def test_a_body_that_names_anything_else_is_a_dict(module: str, name: str, fields: dict[str, Any]) -> None:
    assert decode_body(OBJECT, named(module, name, fields)) == fields
    assert "this" not in sys.modules, "a body had a module imported"


def test_a_module_is_not_asked_for_names_that_it_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """PEP 562: ``__getattr__`` of a module may import others."""
    monkeypatch.setitem(globals(), "__getattr__", lambda name: ran.append(name) or Order)
    ran.clear()
    assert decode_body(OBJECT, named(HERE, "Lazy", {"number": 1})) == {"number": 1}
    assert ran == []


def test_administrators_see_dicts() -> None:
    kind, data = encode_body([Order(1, (Point(2),))])
    plain = {"number": 1, "price": ({"x": 2, "y": 0},), "note": ""}
    assert decode_body(kind, data, typed=False) == [plain]


@pytest.mark.parametrize(
    "parts",
    [
        [HERE, "Point"],
        [HERE, "Point", [1]],
        [HERE, "Point", {1: 2}],
        [1, "Point", {}],
        [HERE, None, {}],
        {},
        None,
        [HERE, "Point", {"x": 1}, 2],
    ],
    ids=repr,
)
def test_damaged_instances_are_refused(parts: Any) -> None:
    with pytest.raises(MessageFormatError, match="does not decode"):
        decode_body(OBJECT, bytes(msgpack.packb(msgpack.ExtType(DATACLASS, msgpack.packb(parts)))))


@pytest.mark.parametrize("fields", [{"x": [], "y": 1}, {"x": 1}], ids=["unhashable field", "unhashable dict"])
def test_an_instance_that_is_a_key_and_has_no_hash_is_refused(fields: dict[str, Any]) -> None:
    data = msgpack.packb({msgpack.ExtType(DATACLASS, msgpack.packb([HERE, "Point", fields])): 1})
    with pytest.raises(MessageFormatError, match="unhashable"):
        decode_body(OBJECT, data)


def test_instances_are_sent_and_read_only_as_deep_as_tuples_are() -> None:
    body: Any = None
    for _ in range(TUPLES_MAX):
        body = Point3(1, 2, [body])
    assert round_trip(body) == body
    with pytest.raises(MessageFormatError, match=f"{TUPLES_MAX} deep"):
        encode_body(Point3(1, 2, body))
    loop = Order(1)
    loop.price = loop
    with pytest.raises(MessageFormatError, match=f"{TUPLES_MAX} deep"):
        encode_body(loop)
    data = msgpack.packb(None)
    for _ in range(100):
        data = msgpack.packb([HERE, "Point", {"x": 1, "y": msgpack.ExtType(DATACLASS, data)}])
    with pytest.raises(MessageFormatError, match="too deep"):
        decode_body(OBJECT, bytes(msgpack.packb(msgpack.ExtType(DATACLASS, data))))


def test_a_field_without_a_value_is_refused_when_it_is_sent() -> None:
    with pytest.raises(MessageFormatError, match="Point has no value"):
        encode_body([object.__new__(Point)])


def test_a_process_without_the_module_gets_a_dict(tmp_path: Any) -> None:
    (tmp_path / "shapes.py").write_text("import dataclasses\n@dataclasses.dataclass\nclass Circle:\n    radius: int\n")
    program = """
        import sys
        from raybroker.content.bodies import decode_body, encode_body
        found = {"radius": 3}
        if sys.argv[1] == "sender":
            import shapes
            print(encode_body(shapes.Circle(3))[1].hex())
        else:
            body = decode_body(2, bytes.fromhex(sys.argv[1]))
            assert "shapes" not in sys.modules and body == found, body
            import shapes
            assert decode_body(2, bytes.fromhex(sys.argv[1])) == shapes.Circle(3)
    """

    def run(argument: str) -> str:
        command = [sys.executable, "-c", textwrap.dedent(program), argument]
        path = ":".join(part for part in [str(tmp_path), *sys.path] if part)
        return subprocess.run(command, check=True, capture_output=True, text=True, env={"PYTHONPATH": path}).stdout

    run(run("sender").strip())
