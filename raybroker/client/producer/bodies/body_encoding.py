"""Encoding of bodies: the only module that pickles and unpickles, for handles with serializer="pickle".

Whoever can send to a queue could run code in a consumer that unpickles; so nothing else in the system ever does, and a
consumer has to opt in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from raybroker.content.bodies import PICKLE, encode_body
from raybroker.model.blocks.record import Buffer
from raybroker.model.errors import ConfigError, MessageFormatError

SERIALIZERS = (None, "pickle")
Encode = Callable[[Any], tuple[int, bytes]]
"""(kind, bytes) of a body."""


Serializer = Literal["pickle"]


def check_serializer(serializer: str | None) -> bool:
    """True for "pickle"; raises ConfigError for anything unknown."""
    if serializer not in SERIALIZERS:
        raise ConfigError(f"serializer {serializer!r} is unknown; leave it out, or use 'pickle'")
    return serializer == "pickle"


def encode_any(body: Any) -> tuple[int, bytes]:
    """(kind, bytes) of a body; what would not come back as it is, is pickled."""
    import pickle

    try:
        return encode_body(body, exact=True)
    except MessageFormatError:
        try:
            return PICKLE, pickle.dumps(body, protocol=pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise MessageFormatError(f"a body of type {type(body).__qualname__} does not pickle: {error}") from None


def unpickle(data: Buffer, *, allowed: bool) -> Any:
    import pickle

    if not allowed:
        raise MessageFormatError('a pickled body; make the consumer with serializer="pickle" if you trust its senders')
    try:
        return pickle.loads(data)
    except Exception as error:  # noqa: BLE001 - unpickling can raise anything
        raise MessageFormatError(f"a pickled body does not load: {error!r}") from None
