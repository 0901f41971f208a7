"""Bodies by reference: ``rb.ref(value)`` asks that a large body be shared in Ray's object store beside the message."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from raybroker.client.connection.shared_body import SHARED, SharedObjects, bytes_in
from raybroker.content.arrays import is_array
from raybroker.model.blocks.large_block import LARGE_BODY_BYTES

_PLAIN: Final = (str, bool, int, float, type(None))
ITEMS_MAX: Final = 1_000
"""Entries of a dict that is shared."""


class BodyReference:
    """Made by :func:`raybroker.ref`; what ``send`` and ``send_async`` take as a body."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {type(self.value).__qualname__}>"


def ref(value: Any) -> BodyReference:
    """The body of a message that consumers on the same node are to read without a copy.

    value  an array of numpy, or a dict of texts and arrays, numbers, texts, booleans and None, with more than a
           mebibyte in it; or the ObjectRef of one

    The broker stores the body as that of any message, so that it outlives its producer, and a copy is in the object
    store of Ray, owned by the broker. Other values, smaller ones, and all from outside Ray, are plain bodies.
    """
    return BodyReference(value)


def given_by_reference(
    body: BodyReference, properties: Mapping[str, Any] | None, objects: SharedObjects | None
) -> tuple[Any, Mapping[str, Any] | None]:
    """The body and the properties of the message that is sent; blocks while the copy is made."""
    value = body.value
    if objects is None:
        return value, properties
    value = objects.resolve(value)
    if not is_shareable(value):
        return value, properties
    key = objects.share(value)
    return value, {**(properties or {}), SHARED: key} if key else properties


def is_shareable(value: Any) -> bool:
    """Whether a value is worth sharing, and comes back the same from the object store and from its encoding."""
    if type(value) is not dict:
        return is_plain_array(value) and value.nbytes > LARGE_BODY_BYTES
    if len(value) > ITEMS_MAX or not all(type(name) is str for name in value):
        return False
    same = all(is_plain_array(one) or type(one) in _PLAIN for one in value.values())
    return same and bytes_in(value) > LARGE_BODY_BYTES


def is_plain_array(value: Any) -> bool:
    """An array without objects and without names of fields."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and is_array(value) and not value.dtype.hasobject and value.dtype.names is None
