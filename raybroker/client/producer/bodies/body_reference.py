"""Bodies by reference: ``rb.ref(value)`` asks that a large body go through Ray's object store, and not to the host.

So do those that are larger than ``raybroker.producer.reference_bytes``, or than the ``reference_threshold`` of their
producer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raybroker.client.connection.shared_body import SHARED, ReferredBody, SharedObjects
from raybroker.content.scattered import bytes_in, parts_of, shared_form, size_of_parts
from raybroker.model.affinity import NODE
from raybroker.model.blocks.large_block import LARGE_BODY_BYTES
from raybroker.model.settings.settings import ConfigView

NEVER = -1


class BodyReference:
    """Made by :func:`raybroker.ref`; what ``send`` and ``send_async`` take as a body."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {type(self.value).__qualname__}>"


def ref(value: Any) -> BodyReference:
    """The body of a message that goes through Ray's object store, where consumers on the same node read it without a
    copy.

    value  an array of numpy, a table or record batch of Arrow, or a dict of texts and arrays, numbers, texts, booleans
           and None, with more than a mebibyte in it; or the ObjectRef of one

    The host of the destination owns the body before the message is there, so that it outlives its producer; that of a
    persistent message is in the store before the send is confirmed.  Other values, smaller ones, and all from outside
    Ray, are plain bodies.
    """
    return BodyReference(value)


def reference_bytes(options: Mapping[str, Any], attributes: ConfigView) -> int:
    """Bytes above which the bodies of a producer go by reference; NEVER: only those that are asked for."""
    threshold = options.get("reference_threshold")
    found: int = attributes["raybroker.producer.reference_bytes"] if threshold is None else threshold
    return found


def given_by_reference(
    body: Any, properties: Mapping[str, Any] | None, objects: SharedObjects | None
) -> tuple[Any, Mapping[str, Any] | None]:
    """The body and the properties of the message that is sent; blocks while the copy is made."""
    value = body.value if type(body) is BodyReference else body
    if objects is None:
        return value, properties
    value = objects.resolve(value)
    if not is_shareable(value):
        return value, properties
    form = shared_form(value)
    try:
        kind, parts = parts_of(form)
    except (TypeError, ValueError):
        return value, properties  # The send says what is wrong with it.
    shared = objects.share(form)
    if shared is None:
        return value, properties
    where = {SHARED: shared.key, NODE: objects.node} if objects.node else {SHARED: shared.key}
    return ReferredBody(objects, shared, kind, size_of_parts(parts)), {**(properties or {}), **where}


def is_shareable(value: Any) -> bool:
    """Whether a value is worth sharing, and comes back the same from the object store and from its encoding."""
    return bytes_in(value) > LARGE_BODY_BYTES
