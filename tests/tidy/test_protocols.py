"""A Protocol stands where two classes implement it, or where a layer is crossed; the others only get fewer.

A layer is crossed where the import law forbids the Protocol's file to import the one class that implements it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.tidy.protocols import all_classes, protocols
from tests.tidy.source import Sources, package
from tests.tidy.test_import_law import FILES, LAWS, layer_of

LONE: dict[str, str] = {
    "client.consumer.message.MessageSession": "an application acknowledges by a message, and the session that is"
    " asked for that takes messages",
    "client.consumer.prefetch.prefetch_buffer.ConsumerSession": "a consumer tells its session what it hands out, and"
    " the session settles that with its consumers",
    "client.io.io_thread.Inherited": "the thread below all connections ends those that use it, when the process ends or"
    " has forked",
    "services.listening.listener.Services": "one service asks for what all share, and these open, pause and close it",
    "services.native.control.LoginDoor": "a control connection asks its service, which makes it and lists it",
}
"""Protocols that one class implements, in a layer that their file may import, and why: that class is made of the part
which the Protocol stands for, imports it, and is called back by it.  Names only ever go."""


def lone(sources: Sources) -> Iterator[tuple[str, str]]:
    """(Protocol, class) for each Protocol that one class implements, though no layer is crossed."""
    known = all_classes(sources)
    for name, classes in protocols(sources).items():
        if len(classes) == 1 and not _crosses(known[name].path, known[classes[0]].path):
            yield name, classes[0]


def _crosses(path: str, other: str) -> bool:
    layer = layer_of(path)
    allowed = LAWS[layer].layers | {layer}
    if path in FILES:
        allowed |= FILES[path][0].layers
    return layer_of(other) not in allowed


def test_protocols_that_one_class_implements_only_get_fewer() -> None:
    found = {name.removeprefix("raybroker."): kept for name, kept in lone(package())}
    new = {name: kept for name, kept in found.items() if name not in LONE}
    assert not new, f"one class alone implements each of these; use the class, a callable or an argument: {new}"
    assert found.keys() == LONE.keys(), f"take these out of the list: {sorted(LONE.keys() - found.keys())}"


def test_a_layer_that_is_crossed_and_a_second_class_are_reasons_for_a_protocol() -> None:
    ports = """
from typing import Protocol

class Near(Protocol):
    def near(self) -> None: ...

class Far(Protocol):
    def far(self) -> None: ...

class Twice(Protocol):
    def twice(self) -> None: ...
"""
    near = "class A:\n    def near(self) -> None: ...\n    def twice(self) -> None: ...\n"
    far = "class B:\n    def far(self) -> None: ...\n    def twice(self) -> None: ...\n"
    sources = {"raybroker/engine/ports.py": ports, "raybroker/core/a.py": near, "raybroker/hosting/b.py": far}
    assert list(lone(sources)) == [("raybroker.engine.ports.Near", "raybroker.core.a.A")]
