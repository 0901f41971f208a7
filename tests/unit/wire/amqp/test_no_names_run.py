"""Nothing that a peer sends is imported, compiled, opened or looked up: readers are made before anything comes."""

from __future__ import annotations

import sys
from typing import Any

from hypothesis import given, settings

from raybroker.wire.amqp.field_readers import reader_of
from raybroker.wire.amqp.performatives import COMPOSITES, decode_composite, encode_composite
from raybroker.wire.amqp.sections import MessageSections, value_section
from raybroker.wire.amqp.types import Described, Symbol, decode
from tests.unit.wire.amqp.pair import Pair
from tests.unit.wire.amqp.test_performatives import of_table

WATCHED = frozenset({"import", "exec", "compile", "open", "pickle.find_class", "os.system", "subprocess.Popen"})
NAMES = ("os", "os.system", "builtins.eval", "__import__", "__class__", "read", "kind", "f0")
_seen: list[str] = []
_watching: list[bool] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event in WATCHED:
        _seen.append(f"{event} {arguments!r:.80}")


sys.addaudithook(_hook)  # A hook is never removed; it does nothing while nobody watches.


class Watch:
    def __enter__(self) -> Watch:
        _seen.clear()
        _watching.append(True)
        return self

    def __exit__(self, *_: object) -> None:
        _watching.clear()


@settings(max_examples=50)
@given(of_table())
def test_decoding_runs_nothing(value: Any) -> None:
    data = encode_composite(value)
    with Watch():
        decode_composite(data)
    assert _seen == []


def test_names_are_texts() -> None:
    pair = Pair().opened()
    ours, _ = pair.session()
    sender, receiver = pair.incoming(ours)
    receiver.grant(50)
    pair.talk()
    with Watch():
        for name in NAMES:
            described = Described(Symbol(name), [name, Symbol(name), {Symbol(name): name}])
            sender.send([value_section(described)])
            assert decode_composite(b"\0\xa3" + bytes((len(name),)) + name.encode() + b"\x45")[0] == Described(name, [])
        bodies = [MessageSections(event.payload).body for event in pair.talk()]
    assert _seen == []
    assert [body.descriptor for body in bodies] == list(NAMES)


def test_the_watch_sees_what_it_is_for() -> None:
    with Watch():
        reader_of(tuple, "x", ["a"], [("uint", {})], [None], [])
    assert any(one.startswith("compile") for one in _seen)
    assert all(one.kind.__module__.startswith("raybroker.wire.amqp") for one in COMPOSITES.values())
    assert decode(b"\xa3\x02os")[0] == "os"
