"""Bodies by reference: which are shared, what is sent of them, and what a consumer makes of a shared one."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy
import pytest

from raybroker.client.connection.shared_body import (
    SHARED,
    ReferredBody,
    SharedBody,
    SharedObject,
    SharedObjects,
    shared_body,
)
from raybroker.client.producer.bodies.body_encoding import encode_any
from raybroker.client.producer.bodies.body_reference import BodyReference, given_by_reference, is_shareable, ref
from raybroker.content.bodies import COMPRESSED, decode_body
from raybroker.content.headers import encode_header
from raybroker.content.scattered import bytes_in
from raybroker.model.blocks.block import encode_block
from raybroker.model.blocks.large_block import PIECE_BYTES, LargeBlock, PromisedBody

LARGE = numpy.arange(300_000, dtype=numpy.float64)
SMALL = numpy.zeros(10)


class Objects:
    """An object store that is a dict. ``full``: nothing can be shared."""

    def __init__(self, *, full: bool = False) -> None:
        self.kept: dict[str, Any] = {}
        self.full = full

    def share(self, value: Any) -> SharedObject | None:
        if self.full:
            return None
        self.kept["b1/key"] = value
        return SharedObject("b1/key", value)

    async def give(self, shared: SharedObject, host: str, nbytes: int, persistent: bool) -> str:
        raise AssertionError("nothing is given here")

    async def find(self, key: str, host: str, persistent: bool) -> Any:
        assert (host, persistent) == ("b1/h1", True)
        return self.kept.get(key)

    def resolve(self, value: Any) -> Any:
        return value


def store_of(objects: Objects) -> SharedObjects:
    return SharedObjects(objects.share, objects.give, objects.find, objects.resolve)


def block_of(value: Any, properties: dict[str, Any] | None, kinds: int = 0) -> LargeBlock:
    """A large block as it comes to a consumer: without its body."""
    kind, data = encode_any(value)
    header = encode_header(properties, None, None, None) if properties else b""
    whole = encode_block(
        [data], producer=1, first_seq=1, timestamp_ms=1, kinds=kind | kinds, headers=[header], persistent=True
    )
    return LargeBlock(memoryview(whole)[: len(whole) - len(data)], PromisedBody(len(data)))


@pytest.mark.parametrize(
    ("value", "shared"),
    [
        (LARGE, True),
        (SMALL, False),
        ({"x": LARGE, "label": "cat", "n": 1, "none": None}, True),
        ({"x": LARGE, "more": [1]}, False),
        ({1: LARGE}, False),
        ({"x": SMALL}, False),
        (numpy.array([object()] * 200_000), False),
        (numpy.zeros(200_000, dtype=[("a", "f8")]), False),
        ("text" * 1_000_000, False),
        (bytes(2_000_000), False),
        (LARGE.tolist(), False),
    ],
)
def test_what_comes_back_the_same_is_shared(value: Any, shared: bool) -> None:
    assert is_shareable(value) is shared
    objects = Objects()
    body, properties = given_by_reference(ref(value), {"a": 1}, store_of(objects))
    if shared:
        assert type(body) is ReferredBody
        kind, data = encode_any(value)
        assert (body.kind, body.data, len(body), body.nbytes) == (kind, data, len(data), len(data))
    else:
        assert body is value
    assert properties == ({"a": 1, SHARED: "b1/key"} if shared else {"a": 1})


def test_outside_of_ray_and_where_nothing_can_be_shared_it_is_a_plain_body() -> None:
    for objects in (None, store_of(Objects(full=True))):
        body, properties = given_by_reference(ref(LARGE), None, objects)
        assert body is LARGE
        assert properties is None
    assert repr(ref(LARGE)) == "<BodyReference of ndarray>"
    assert isinstance(ref(1), BodyReference)


def test_a_consumer_reads_what_is_shared_and_else_its_host() -> None:
    objects = store_of(Objects())
    _, properties = given_by_reference(ref(LARGE), None, objects)
    found = asyncio.run(shared_body(objects, block_of(LARGE, dict(properties or {})), "b1/h1"))
    assert found is not None
    assert found.value is LARGE
    for store, sent, kinds in (
        (None, properties, 0),
        (store_of(Objects()), properties, 0),
        (objects, None, 0),
        (objects, {SHARED: 7}, 0),
        (objects, properties, COMPRESSED),
    ):
        assert asyncio.run(shared_body(store, block_of(LARGE, dict(sent or {}), kinds), "b1/h1")) is None


def test_the_bytes_of_a_shared_body_are_those_of_the_message() -> None:
    kind, data = encode_any({"x": LARGE, "label": "cat"})
    body = SharedBody({"x": LARGE, "label": "cat"}, len(data))
    assert body.nbytes == len(data)
    assert body.data == data
    assert body.piece(1) == data[PIECE_BYTES : 2 * PIECE_BYTES]
    again = decode_body(kind, memoryview(body.data))
    assert (again["x"] == LARGE).all()
    assert bytes_in(body.value) == LARGE.nbytes
