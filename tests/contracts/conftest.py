"""Brokers for the contract of the handles: memory, a directory, behind a socket, and the asynchronous face."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raybroker.store.journal.anchors import MARK_NAME
from tests.contracts.copied import CopiedBroker, lose_leader
from tests.contracts.handles import LoopbackBroker
from tests.unit.copies.rig import Group

MakeBroker = Callable[..., LoopbackBroker]
FACES = (
    "memory",
    "store",
    "sockets",
    "aio",
    pytest.param("own", marks=pytest.mark.long),
    pytest.param("copied", marks=pytest.mark.long),
)
ONE_FACE = pytest.mark.parametrize("make_broker", ["memory"], indirect=True)
"""For tests that mostly wait for a time to pass: the broker does the same whatever its face."""
TWO_FACES = pytest.mark.parametrize("make_broker", ["sockets", "aio"], indirect=True)
"""For what handles refuse by themselves, an argument or a call once they are closed: blocking ones over a link, and
asynchronous ones in the broker's process. The store and the loop of the application have no part in it."""

FILES = pytest.mark.parametrize("store", ["files"], indirect=True)
"""For what is about the files of one store: where the log has copies there are no own files for large bodies, and the
copies are elsewhere."""


@pytest.fixture(params=FACES)
def make_broker(request: pytest.FixtureRequest) -> Iterator[MakeBroker]:
    """Brokers with properties of their own (dots of a name written as ``__``), closed at the end."""
    made: list[LoopbackBroker] = []
    folder: Path | None = request.getfixturevalue("tmp_path") if request.param in ("store", "copied") else None
    groups: list[Group] = []

    def make(**properties: object) -> LoopbackBroker:
        if request.param == "copied":
            assert folder is not None
            groups.append(Group(folder / f"copies{len(made)}"))
            made.append(CopiedBroker(folder / f"store{len(made)}", groups[-1], **properties))
            return made[-1]
        store = folder / f"store{len(made)}" if folder is not None else None
        face = request.param if request.param in ("aio", "own", "sockets", "direct") else "blocking"
        # Segments are reserved on the disk, and there are hundreds of these stores.
        made.append(LoopbackBroker(store, face, raybroker__store__segment_bytes="1m", **properties))
        return made[-1]

    yield make
    for broker in made:
        broker.close()
    for group in groups:
        group.close()
    for store in (*folder.glob("store*"), *folder.glob("copies*")) if folder is not None else ():
        shutil.rmtree(store)


class OneStore:
    """One store, which brokers open one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened = 0
        self._broker: LoopbackBroker | None = None

    def open(self, **properties: object) -> LoopbackBroker:
        """A broker over what the one before left when it was closed properly."""
        self.close()
        return self._open(properties)

    def crash(self, **properties: object) -> LoopbackBroker:
        """A broker over the files as they are at this moment, as after the end of the process before."""
        self.lose()
        return self._open(properties)

    def lose(self) -> None:
        """The broker is gone, and the files are as they were at this moment."""
        if self._broker is None:
            return
        before = self._path
        self._opened += 1
        # The broker may write meanwhile. What it has marked as written must not be newer than what is copied.
        marks = {path: path.read_bytes() for path in before.rglob(MARK_NAME)}
        shutil.copytree(before, self._path)
        for path, mark in marks.items():
            (self._path / path.relative_to(before)).write_bytes(mark)
        self.close()
        shutil.rmtree(before)

    def close(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.close()

    def _open(self, properties: dict[str, object]) -> LoopbackBroker:
        self._broker = LoopbackBroker(self._path, raybroker__store__segment_bytes="1m", **properties)
        return self._broker

    @property
    def _path(self) -> Path:
        return self._folder / f"store{self._opened}"


class CopiedStore(OneStore):
    """The same, with copies: a crash is the loss of the leader, and another copy leads then."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.group = Group(folder / "copies")

    def lose(self) -> None:
        if self._broker is not None:
            lose_leader(self.group)
            self.close()

    def _open(self, properties: dict[str, object]) -> LoopbackBroker:
        self._broker = CopiedBroker(self._path, self.group, **properties)
        return self._broker


@pytest.fixture(params=["files", pytest.param("copies", marks=pytest.mark.long)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OneStore]:
    """A store of the test's own."""
    found = OneStore(tmp_path) if request.param == "files" else CopiedStore(tmp_path)
    yield found
    found.close()
    if isinstance(found, CopiedStore):
        found.group.close()
    for folder in (*tmp_path.glob("store*"), *tmp_path.glob("copies*")):
        shutil.rmtree(folder)


@pytest.fixture
def broker(make_broker: MakeBroker) -> LoopbackBroker:
    """A broker with the defaults."""
    return make_broker()
