"""Bodies of types that msgpack has none for: they come back as what they were, arrays without a copy."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import subprocess
import sys
import zoneinfo
from typing import Any

import msgpack
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.content.bodies import MAP, OBJECT, TEXT, decode_body, encode_body
from raybroker.content.msgpack_types import ARRAY, SCALAR, TUPLE, TUPLES_MAX
from raybroker.model.errors import MessageFormatError


def round_trip(body: Any) -> Any:
    kind, data = encode_body(body)
    return decode_body(kind, memoryview(data))


leaves = st.one_of(
    st.datetimes(timezones=st.none() | st.just(datetime.UTC) | st.just(zoneinfo.ZoneInfo("Europe/Zurich"))),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.decimals(allow_nan=False),
    st.integers(0, 9),
    st.text(max_size=3),
)
bodies = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
    ),
    max_leaves=8,
)


@given(bodies)
def test_a_body_comes_back_as_it_was_with_its_type(body: Any) -> None:
    found = round_trip(body)
    assert (found, type(found)) == (body, type(body))


@pytest.mark.parametrize("text", ["NaN", "-0", "1E+3", "Infinity", "1.500"])
def test_a_decimal_number_keeps_its_digits(text: str) -> None:
    assert str(round_trip(decimal.Decimal(text))) == text


def test_the_second_time_of_an_hour_that_comes_twice_is_kept() -> None:
    when = datetime.datetime(2024, 10, 27, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Zurich"), fold=1)
    found = round_trip(when)
    assert (found, found.fold, found.tzinfo.key) == (when, 1, "Europe/Zurich")


class Colour(enum.IntEnum):
    """A subclass of int."""

    RED = 3


class Name(str):
    """A subclass of str, with a text of its own for people."""

    __slots__ = ()

    def __str__(self) -> str:
        return "other"


Pair = collections.namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("body", "kind", "found"),
    [
        (Colour.RED, OBJECT, 3),
        ({"c": Colour.RED}, MAP, {"c": 3}),
        (Name("x"), TEXT, "x"),
        ([Name("x")], 5, ["x"]),
        (Pair(1, 2), OBJECT, (1, 2)),
        (collections.OrderedDict(a=1), MAP, {"a": 1}),
        (collections.defaultdict(list, a=[1]), MAP, {"a": [1]}),
    ],
)
def test_what_a_class_of_the_application_adds_stays_behind(body: Any, kind: int, found: Any) -> None:
    assert encode_body(body)[0] == kind
    assert (round_trip(body), type(round_trip(body))) == (found, type(found))
    with pytest.raises(MessageFormatError, match="another type"):
        encode_body(body, exact=True)


ARRAYS = [
    numpy.arange(6).reshape(2, 3),
    numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)),
    numpy.arange(10)[::2],
    numpy.zeros((0, 3)),
    numpy.array(5),
    numpy.array(["a", "bcd"]),
    numpy.array(["2024-01-01"], dtype="M8[D]"),
    numpy.zeros(3, dtype=[("a", "i4"), ("b", "f8", (2,))]),
    numpy.array([True]),
    numpy.arange(3, dtype=">i4"),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}-{array.shape}")
def test_an_array_comes_back_alone_and_inside_of_other_bodies(array: Any) -> None:
    for found in (round_trip(array), round_trip([array])[0], round_trip({"a": (array,)})["a"][0]):
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert (found == array).all()
        assert not found.flags.writeable


def test_a_received_array_is_a_view_and_a_sent_one_can_be_changed_at_once() -> None:
    array = numpy.arange(1000)
    kind, data = encode_body(array)
    array[:] = 0
    found = decode_body(kind, memoryview(data))
    assert found.sum() == 499_500
    assert numpy.shares_memory(found, numpy.frombuffer(data, "u1"))


@pytest.mark.parametrize(
    "scalar",
    [
        numpy.float32(1.5),
        numpy.int64(-7),
        numpy.bool_(True),
        numpy.datetime64("2024-01-01"),
        numpy.str_(""),
        numpy.float64(2),
        numpy.complex64(1j),
    ],
    ids=repr,
)
def test_a_scalar_of_numpy_keeps_its_type(scalar: Any) -> None:
    for found in (round_trip(scalar), round_trip([scalar])[0]):
        assert (found, type(found)) == (scalar, type(scalar))


@pytest.mark.parametrize(
    "body",
    [numpy.array([object()]), numpy.ma.array([1]), {1, 2}, object(), Colour, [1 << 64], [{1}]],
    ids=lambda body: type(body).__name__,
)
def test_what_cannot_travel_is_refused_by_its_type(body: Any) -> None:
    with pytest.raises(MessageFormatError, match=type(body).__name__):
        encode_body(body)


def test_lists_and_tuples_are_sent_only_as_deep_as_they_can_be_read() -> None:
    deep: list[Any] = []
    for _ in range(1023):
        deep = [deep]
    found, depth = round_trip(deep), 1
    while found:
        found, depth = found[0], depth + 1
    assert depth == 1024
    with pytest.raises(MessageFormatError, match="1024 deep"):
        encode_body([deep])
    tuples: tuple[Any, ...] = ()
    for _ in range(TUPLES_MAX - 1):
        tuples = (tuples,)
    assert round_trip(tuples) == tuples
    with pytest.raises(MessageFormatError, match=f"{TUPLES_MAX} deep"):
        encode_body((tuples,))


def _ext(code: int, data: bytes) -> bytes:
    packed: bytes = msgpack.packb(msgpack.ExtType(code, data))
    return packed


def _nested(depth: int) -> bytes:
    data = msgpack.packb([])
    for _ in range(depth):
        data = msgpack.packb([msgpack.ExtType(TUPLE, data)])
    return bytes(data)


HEAD = msgpack.packb(["|O", [1], "C"])
DAMAGED = [
    _ext(99, b""),
    _ext(TUPLE, b""),
    _ext(TUPLE, b"\x80"),
    _ext(2, b"x"),
    _ext(3, b"x"),
    _ext(6, b"123"),
    _ext(7, b"x"),
    _ext(ARRAY, b""),
    _ext(ARRAY, b"\xff" * 8),
    _ext(ARRAY, len(HEAD).to_bytes(4, "little") + HEAD + bytes(8)),
    _ext(SCALAR, b"\1"),
    b"\xc9\0\0\0\7\x09",
    _nested(TUPLES_MAX + 1),
    b"\x81\x90\1",
    msgpack.packb({msgpack.ExtType(TUPLE, msgpack.packb([[]])): 1}),
]


@pytest.mark.parametrize("data", DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_values_are_refused_and_never_become_objects(data: bytes) -> None:
    with pytest.raises(MessageFormatError, match="does not decode"):
        decode_body(OBJECT, memoryview(data))


@given(st.integers(1, 10), st.binary(max_size=40))
def test_only_a_format_error_leaves_the_decoder(code: int, data: bytes) -> None:
    try:
        decode_body(OBJECT, _ext(code, data))
    except MessageFormatError:
        return


def test_numpy_is_not_imported_unless_it_is_used() -> None:
    program = (
        "import sys; from raybroker.content.bodies import encode_body, decode_body;"
        "b = {'a': (1, 2)}; assert decode_body(*encode_body(b)) == b; sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
