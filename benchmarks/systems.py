"""Systems that run from the beginning of a comparison to its end, and give one slice at a time.

A peer, or raybroker, has standing workers: what they import and join stays, so that a slice costs little beside its
messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Protocol

from benchmarks import ours_features, ours_singles
from benchmarks.bare_pipe import Pipe, best_of
from benchmarks.ours import Raybroker
from benchmarks.peers.base import Address, Peer, seconds
from benchmarks.slices import BACKLOG, Rates
from benchmarks.workers import Team, Worker

PIPE_SHAPE: Final = {"blocking": (1, 1), "through": (100, 64)}
"""(batch, window) of the bare pipe for a figure."""
PIPE_MIDDLES: Final = 2
"""The pipe runs each slice with both of its middles and gives the better one: each has half of the time."""


class Sliced(Protocol):
    """A system that is running."""

    def rates(self, figure: str, messages: int) -> Rates:
        """Messages a second of one slice."""
        ...


class RunningPipe:
    """The bare pipe, which is started for each slice."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self._folder = folder
        self._size = size_bytes

    def rates(self, figure: str, messages: int) -> Rates:
        batch, window = PIPE_SHAPE[figure]
        frames = max(messages // PIPE_MIDDLES // batch, 4 * window)
        return {figure: best_of(Pipe(batch, window, frames, self._size), self._folder).rate}


class RunningPeer:
    """A system of :mod:`benchmarks.peers`, from its start to the end of the stack that it is given."""

    def __init__(self, peer: Peer, folder: Path, size_bytes: int, stack: ExitStack) -> None:
        self.peer = peer
        self.size = size_bytes
        stack.callback(peer.stop)
        self.address: Address = peer.start(folder)
        self._team = stack.enter_context(Team(peer.environment()))
        self._workers: list[Worker] = []
        self._prepared: set[str] = set()
        if peer.warmup:
            self.rates("through", peer.warmup)

    def rates(self, figure: str, messages: int) -> Rates:
        kind = type(self.peer)
        queue = self.queue(figure)
        args = (self.address, queue, messages, self.size)
        if figure == "through":
            made, got = self.together([(kind.produce, args), (kind.consume, args)])
            return {figure: messages * 1e9 / (got["ended_ns"] - made["began_ns"])}
        if figure == BACKLOG:
            (made,), (got,) = self.together([(kind.produce, args)]), self.together([(kind.consume, args)])
            return {"produce": messages / seconds(made), "consume": messages / seconds(got)}
        single = {"blocking": kind.blocking, "receipts": kind.receipts}.get(figure)
        if single is not None:
            (made,) = self.together([(single, args)])
            return {figure: messages / seconds(made)}
        raise ValueError(f"{self.peer.name} has no figure {figure!r}")

    def queue(self, figure: str) -> str:
        """The queue of a figure, made when it is first used."""
        name = f"ratios-{figure}"
        if name not in self._prepared:
            self.peer.prepare(self.address, name)
            self._prepared.add(name)
        return name

    def together(
        self, works: Iterable[tuple[Any, tuple[Any, ...]]], word: Callable[[], Any] = lambda: "go"
    ) -> list[Any]:
        """Work functions at once, each in a standing worker of its own; the last one is let go first. ``word`` makes
        what ``job.ready`` returns to all of them. Workers of which one has failed are replaced."""
        works = list(works)
        while len(self._workers) < len(works):
            self._workers.append(self._team.stand())
        used = self._workers[: len(works)]
        try:
            for worker, (work, args) in zip(used, works, strict=True):
                worker.give(work, *args)
            for worker in used:
                worker.wait_ready()
            said = word()
            for worker in reversed(used):
                worker.go(said)
            return [worker.result() for worker in used]
        except Exception:
            for worker in used:  # One that waits for the other would answer to the next slice.
                worker.process.kill()
            self._workers = self._workers[len(works) :]
            raise


class RunningRaybroker(RunningPeer):
    """The same for raybroker, with the figures that only it has. Queues are emptied after a slice that fills them."""

    def rates(self, figure: str, messages: int) -> Rates:
        plan = next((plan for plan in ours_features.PLANS if plan.key == figure), None)
        if plan is not None:
            consumer, producer = plan.works(self.address, self.queue(figure), messages, self.size)
            made, got = self.together([producer, consumer])
            return {figure: messages * 1e9 / (got["ended_ns"] - made["began_ns"])}
        queue = self.queue(figure)
        args = (self.address, queue, messages, self.size)
        if figure == "auto":
            (got,) = self.together([(ours_singles.receive_auto, args)])
            return {figure: messages / seconds(got)}
        if figure not in {"clients", "async"}:
            found = super().rates(figure, messages)
        else:
            spans = self.together(self._producers(figure, args))
            began, ended = min(span["began_ns"] for span in spans), max(span["ended_ns"] for span in spans)
            found = {figure: messages * 1e9 / (ended - began)}
        if figure in {"blocking", "clients", "async"}:
            self.together([(ours_singles.purge, (self.address, queue))])
        return found

    def queue(self, figure: str) -> str:
        """Figures share three queues: a host of its own takes memory and time to warm up."""
        if figure.startswith("paced"):
            return super().queue("paced")
        return super().queue({"auto": "auto", "blocking": "single", "clients": "single"}.get(figure, "many"))

    @staticmethod
    def _producers(figure: str, args: tuple[Any, ...]) -> list[tuple[Any, tuple[Any, ...]]]:
        if figure == "async":
            return [(ours_singles.send_async, args)]
        processes, clients = ours_singles.CLIENT_PROCESSES, ours_singles.CLIENTS
        address, queue, messages, size = args
        each = (address, queue, messages // processes, size, clients // processes)
        return [(ours_singles.send_of_each, each)] * processes


def running(names: Iterable[str], folder: Path, size_bytes: int, stack: ExitStack) -> dict[str, Sliced]:
    """Those of the systems that can run here, started; they stop with the stack. The others are named with the
    reason."""
    from benchmarks.__main__ import build_systems

    wanted = set(names)
    systems: dict[str, Sliced] = {}
    for system in build_systems(quick=True):
        if system.name not in wanted:
            continue
        if reason := system.missing():
            print(f"{system.name}: skipped, {reason}", flush=True)
            continue
        home = folder / system.name.replace(" ", "-")
        home.mkdir()
        print(f"{system.name}: {'; '.join([*system.versions(), *system.settings()])}", flush=True)
        if isinstance(system, Peer):
            kind = RunningRaybroker if isinstance(system, Raybroker) else RunningPeer
            systems[system.name] = kind(system, home, size_bytes, stack)
        else:
            systems[system.name] = RunningPipe(home, size_bytes)
    return systems
