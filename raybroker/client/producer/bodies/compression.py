"""Bodies that travel compressed: because they are large, or because a property of their message says so.

Bodies above a threshold (``DefaultCompressionThreshold``, or ``compression_threshold`` of a producer) are compressed in
the process that sends, by the codec of ``MessageCompressionOptions``.  The message has no property that says so: the
kind of its body does, and only whoever reads ``body`` decompresses it, in its own process.  Decisions:

* A body that compressing would not make smaller travels as it is; nobody pays for decompressing it.
* The broker never compresses: it forwards blocks byte for byte as they were stored, also to consumers whose connection
  has a threshold.  One process would otherwise compress for all of them.
* A connection to a broker in its own process (``rb.loopback()``) has no threshold: there is no way to be shortened.
* The property ``JMS_SUN_COMPRESS`` compresses with zlib in any process, whatever the size, and tells both sizes.  It
  may make a body larger, as it does in MQ.  False is no veto against the threshold.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from raybroker.client.connection.connection import ConnectionCore
from raybroker.client.producer.bodies.body_encoding import Encode, encode_any
from raybroker.client.producer.bodies.xml_validation import Validator
from raybroker.content.bodies import AMQP, COMPRESS, COMPRESSED, DEFLATED, ZSTD, deflated, encode_body, inflated
from raybroker.content.codecs import zstandard, zstd
from raybroker.content.headers import decode_header, encode_header
from raybroker.model.bounds import MESSAGE_BYTES_MAX
from raybroker.model.errors import MessageTooLargeError
from raybroker.model.settings.setting import INT_MAX

Codec = tuple[int, Callable[[bytes], bytes]]
"""(bit of the kind, what compresses)."""
CODECS: Final[Mapping[str, Codec]] = {
    "GZIP_DEFAULT_COMPRESSION": (DEFLATED, zlib.compress),
    "GZIP_BEST_COMPRESSION": (DEFLATED, partial(zlib.compress, level=zlib.Z_BEST_COMPRESSION)),
    "GZIP_BEST_SPEED": (DEFLATED, partial(zlib.compress, level=zlib.Z_BEST_SPEED)),
    "ZSTD": (ZSTD, zstd),
}
"""Value of MessageCompressionOptions → codec."""
_KEY: Final = COMPRESS.encode()


def body_encoder(connection: ConnectionCore, *, pickles: bool = False, threshold_bytes: int | None = None) -> Encode:
    """What makes the bodies of a producer, decided once: with a codec only where bodies may be compressed.

    ``threshold_bytes``: of the producer; None is the connection's. Raises ConfigError when the codec's library is not
    installed.
    """
    encode: Encode = encode_any if pickles else encode_body
    if threshold_bytes is None:
        threshold_bytes = connection.attributes["DefaultCompressionThreshold"]
    if threshold_bytes >= min(INT_MAX, connection.message_bytes_max) or connection.collocated:
        return encode
    name = connection.attributes["MessageCompressionOptions"]
    if name == "ZSTD":
        zstandard()
    return Compressor(encode, threshold_bytes, CODECS[name], connection.message_bytes_max)


class Compressor:
    """Encodes bodies and compresses those of more than ``threshold_bytes``, from any thread.

    ``most``: bytes that a body may have before it is compressed, since whoever receives it bounds it by that.
    """

    def __init__(self, encode: Encode, threshold_bytes: int, codec: Codec, most: int) -> None:
        self._encode = encode
        self._threshold_bytes = threshold_bytes
        self._bit, self._compress = codec
        self._most = most

    def __call__(self, body: Any) -> tuple[int, bytes]:
        kind, data = self._encode(body)
        if len(data) <= self._threshold_bytes or kind == AMQP:
            return kind, data
        if len(data) > self._most:
            raise too_large(len(data), self._most)
        small = self._compress(data)
        return (kind | self._bit, small) if len(small) < len(data) else (kind, data)


def squeezed(kind: int, data: bytes, threshold_bytes: int) -> tuple[int, bytes]:
    """(kind, body) of a message that is sent on: compressed with zlib when it is larger, and is not compressed yet."""
    if len(data) <= threshold_bytes or kind & COMPRESSED or kind == AMQP:
        return kind, data
    small = zlib.compress(data)
    return (kind | DEFLATED, small) if len(small) < len(data) else (kind, data)


def compresses(encode: Encode) -> bool:
    """Whether an encoder may compress, so that it has to see bytes as well."""
    return isinstance(encode.encode if isinstance(encode, Validator) else encode, Compressor)


def compressed(kind: int, data: bytes, header: bytes) -> tuple[int, bytes, bytes]:
    """(kind, body, headers) as they travel: compressed when JMS_SUN_COMPRESS is True, else what was given."""
    if _KEY not in header:
        return kind, data, header
    found = decode_header(header)
    if found.properties.get(COMPRESS) is not True:
        return kind, data, header
    if kind & COMPRESSED:  # Because of its size; the property wants zlib, and both sizes.
        kind, data = inflated(kind, data, MESSAGE_BYTES_MAX)
    kind, data, marked = deflated(kind, data, found.properties)
    texts = (found.correlation_id, found.reply_to, found.type, found.dedup_id)
    return kind, data, encode_header(marked, *texts, found.no_id, found.unit, found.doubtful)


def too_large(nbytes: int, most: int) -> MessageTooLargeError:
    """What the send of a body of more than ``most`` bytes raises."""
    return MessageTooLargeError(f"a body of {nbytes} bytes exceeds imq.message.max_size={most}; send it in parts")
