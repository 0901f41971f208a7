"""Readers of composite types: one function for each class, whose source is made from the types of its fields.

A loop over fields that looks each constructor up costs three times as much as a function that knows what its class
has. The text of the function is made of the names in this file and of numbers alone, before anything is received:

    def read(buffer, at, levels):
        code = buffer[at]
        if code == 0xC0: …                      # count and end of the list
        f0, f1 = d0, d1                         # defaults
        if count > 0:
            code = buffer[at]
            if code == 0x40: at += 1            # null
            elif code == 0x52: …                # the constructors that most values have
            else: f0, at = other(0, code, …)    # all the others, from the table of constructors
        …
        return new(kind, (f0, f1)), end
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from raybroker.wire.amqp.types import Reader, compound32, malformed

FieldReaders = Mapping[int, Reader]

_OFTEN: Final[Mapping[str, Mapping[int, str]]] = {
    "uint": {
        0x52: "f = buffer[at + 1]; at += 2",
        0x43: "f = 0; at += 1",
        0x70: "f = u32(buffer, at + 1)[0]; at += 5",
    },
    "boolean": {0x41: "f = True; at += 1", 0x42: "f = False; at += 1"},
    "ubyte": {0x50: "f = buffer[at + 1]; at += 2"},
    "binary": {0xA0: "stop = at + 2 + buffer[at + 1]; f = bytes(buffer[at + 2 : stop]); at = stop"},
    "string": {0xA1: "stop = at + 2 + buffer[at + 1]; f = str(buffer[at + 2 : stop], 'utf-8'); at = stop"},
    "message-id": {0xA1: "stop = at + 2 + buffer[at + 1]; f = str(buffer[at + 2 : stop], 'utf-8'); at = stop"},
    "timestamp": {0x83: "f = i64(buffer, at + 1)[0]; at += 9"},
}
"""Type of a field → the constructors that are read without a call."""


def reader_of(
    kind: type[Any],
    symbol: str,
    names: Sequence[str],
    types: Sequence[tuple[str, FieldReaders]],
    defaults: Sequence[Any],
    mandatory: Sequence[int],
) -> Reader:
    """What reads the list of a class, with its constructor. ``types``: name and constructors of each field's."""

    def other(index: int, code: int, buffer: Any, at: int, levels: int) -> tuple[Any, int]:
        reader = types[index][1].get(code)
        if reader is None:
            wanted = types[index][0]
            raise malformed(f"{names[index]} of {symbol} has the constructor {code:#04x}, which is none of {wanted}")
        return reader(buffer, at, levels)

    def no_list() -> Exception:
        return malformed(f"{symbol} describes something else than a list")

    def too_many(count: int) -> Exception:
        return malformed(f"{symbol} has {count} fields; it has at most {len(names)}")

    def no_end() -> Exception:
        return malformed(f"the fields of {symbol} do not end where their list ends")

    def missing(index: int) -> Exception:
        return malformed(f"{symbol} has no {names[index]}, which is mandatory")

    known: dict[str, Any] = {f"d{index}": default for index, default in enumerate(defaults)}
    known |= {"kind": kind, "new": tuple.__new__, "compound32": compound32, "other": other, "no_list": no_list}
    known |= {"u32": struct.Struct(">I").unpack_from, "i64": struct.Struct(">q").unpack_from}
    known |= {"too_many": too_many, "no_end": no_end, "missing": missing}
    exec(compile(_source([name for name, _ in types], mandatory), f"<reader of {symbol}>", "exec"), known)
    made: Callable[..., Any] = known["read"]
    return made


def _source(types: Sequence[str], mandatory: Sequence[int]) -> str:
    lines = [
        "def read(buffer, at, levels):",
        "    code = buffer[at]",
        "    if code == 0xC0: count = buffer[at + 2]; end = at + 2 + buffer[at + 1]; at += 3",
        "    elif code == 0x45: count = 0; end = at = at + 1",
        "    elif code == 0xD0: count, at, end = compound32(buffer, at + 1)",
        "    else: raise no_list()",
        f"    if count > {len(types)}: raise too_many(count)",
    ]
    lines += [f"    f{index} = d{index}" for index in range(len(types))]
    indent = ""
    for index, name in enumerate(types):
        # What is missing at the end is passed over at once.
        lines += [f"    {indent}if count > {index}:"]
        indent += " "
        lines += [f"    {indent}code = buffer[at]"]
        cases = [(0x40, "at += 1"), *_OFTEN.get(name, {}).items()]
        for case, (constructor, text) in enumerate(cases):
            test = "elif" if case else "if"
            lines += [f"    {indent}{test} code == {constructor:#04x}: {text.replace('f =', f'f{index} =')}"]
        lines += [f"    {indent}else: f{index}, at = other({index}, code, buffer, at + 1, levels)"]
    lines += ["    if at != end: raise no_end()"]
    lines += [f"    if f{index} is None: raise missing({index})" for index in mandatory]
    values = "".join(f"f{index}, " for index in range(len(types)))
    lines += [f"    return new(kind, ({values})), end"]
    return "\n".join(lines)
