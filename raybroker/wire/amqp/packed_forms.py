"""Forms of frequent frames, made from the table of composites: the bytes that never change are encoded once.

form = PackedForm(channel, AmqpTransfer, handle=3, delivery_id=UINT_SLOT, delivery_tag=TAG_SLOT, settled=True)
head = form.pack(form.size + len(payload), 7, 7)
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from raybroker.wire.amqp.frames import AMQP_FRAME, FRAME_HEAD
from raybroker.wire.amqp.performatives import composite_of
from raybroker.wire.amqp.types import encode_ulong


class Slot(NamedTuple):
    """A field that differs from frame to frame: a number of four bytes behind these."""

    front: bytes


UINT_SLOT: Final = Slot(b"\x70")
TAG_SLOT: Final = Slot(b"\xa0\x04")
"""A binary of four bytes, given as a number."""


class PackedForm:
    """A frame of one class with the given fields; the others are null. ``pack(size, *slots)``: the frame up to its
    payload, ``size`` is that of the whole frame, at least ``self.size``."""

    __slots__ = ("pack", "size")

    def __init__(self, channel: int, kind: type[Any], **fields: Any) -> None:
        known = composite_of(kind)
        last = max(known.fields.index(name) for name in fields)
        runs = [b""]
        for name, field_type in zip(known.fields[: last + 1], known.types, strict=False):
            value = fields.get(name)
            if isinstance(value, Slot):
                runs[-1] += value.front
                runs.append(b"")
            else:
                runs[-1] += b"\x40" if value is None else field_type.encode(value)
        bytes_of_fields = sum(map(len, runs)) + 4 * (len(runs) - 1)
        assert bytes_of_fields < 255
        front = FRAME_HEAD.pack(0, 2, AMQP_FRAME, channel)[4:] + b"\0" + encode_ulong(known.descriptor)
        runs[0] = front + bytes((0xC0, bytes_of_fields + 1, last + 1)) + runs[0]
        layout = struct.Struct(">I" + "I".join(f"{len(run)}s" for run in runs))
        self.size = layout.size
        self.pack: Callable[..., bytes] = _PACKERS[len(runs) - 1](layout.pack, runs)


def _one(pack: Callable[..., bytes], runs: list[bytes]) -> Callable[..., bytes]:
    before, after = runs
    return lambda size, a: pack(size, before, a, after)


def _two(pack: Callable[..., bytes], runs: list[bytes]) -> Callable[..., bytes]:
    before, between, after = runs
    return lambda size, a, b: pack(size, before, a, between, b, after)


def _five(pack: Callable[..., bytes], runs: list[bytes]) -> Callable[..., bytes]:
    r0, r1, r2, r3, r4, r5 = runs
    return lambda size, a, b, c, d, e: pack(size, r0, a, r1, b, r2, c, r3, d, r4, e, r5)


_PACKERS: Final = {1: _one, 2: _two, 5: _five}
