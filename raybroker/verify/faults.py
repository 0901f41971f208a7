"""Faults: whom one meets, and the agent that sends the signals on a node.

What an agent has stopped it lets go on by itself when the time is over, also when nobody asks it to any more: whoever
ends the command, in whatever way, leaves no process stopped.
"""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from raybroker.model.errors import IllegalStateError

T = TypeVar("T")
BROKER: Final = "broker"
"""The name of a broker's own process among those of its hosts."""
ACTOR: Final = b"ray::"
"""What the command line of an actor's process begins with."""
NODE_KILLED: Final = "kill-node"
NODE_PAUSED: Final = "pause-node"
NODE_FAULTS: Final = (NODE_KILLED, NODE_PAUSED)
"""They meet clients, too, which are therefore on the node of the command."""
RAYLET: Final = "raylet"
"""The name of the process that has started all others of its node."""
AGENT_SILENT_S: Final = 150.0
"""An agent that nobody has asked for so long ends itself: the command is gone. Longer than a pause may be."""


class Dice:
    """Choices that are the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._count = 0

    def choose(self, among: Sequence[T]) -> T:
        self._count += 1
        digest = hashlib.blake2b(f"{self._seed}/{self._count}".encode(), digest_size=8).digest()
        return among[int.from_bytes(digest, "big") % len(among)]


class Rounds:
    """Choices of which each is made once before one is made again."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice
        self._left: list[str] = []

    def choose(self, among: Sequence[str]) -> str:
        self._left = [one for one in self._left if one in among] or list(among)
        chosen = self._dice.choose(self._left)
        self._left.remove(chosen)
        return chosen


@dataclass(frozen=True, slots=True)
class Deed:
    """One fault that is going to happen. ``processes``: name of each → its id on the node."""

    kind: str
    target: str
    node: str
    processes: Mapping[str, int]

    @property
    def pauses(self) -> bool:
        return self.kind.startswith("pause-")

    @property
    def text(self) -> str:
        ids = ", ".join(str(pid) for pid in self.processes.values())
        return f"{self.kind} {self.target} (process {ids})"


def planned(
    kind: str, dice: Dice, brokers: Mapping[str, tuple[str, Mapping[str, int]]], spared: Collection[str] = ()
) -> Deed | None:
    """A fault of a kind; ``brokers``: name → its node and process ids; ``spared``: nodes that no fault meets as a
    whole. None when there is nobody that it could meet."""
    what = kind.partition("-")[2]
    if what == "node":
        return _whole_node(kind, dice, brokers, spared)
    there = [name for name, (_, pids) in sorted(brokers.items()) if what != "host" or set(pids) - {BROKER}]
    if not there:
        return None
    name = dice.choose(there)
    node, pids = brokers[name]
    own = pids[BROKER]
    if what == "broker":
        return Deed(kind, f"broker {name}", node, {BROKER: own})
    if what == "machine":
        return Deed(kind, f"broker {name} with its hosts", node, dict(pids))
    hosts = sorted(host for host, pid in pids.items() if host != BROKER and pid != own)
    if not hosts:
        return None
    host = dice.choose(hosts)
    return Deed(kind, f"host {host} of broker {name}", node, {host: pids[host]})


def _whole_node(
    kind: str, dice: Dice, brokers: Mapping[str, tuple[str, Mapping[str, int]]], spared: Collection[str]
) -> Deed | None:
    nodes = sorted({node for node, _ in brokers.values()} - set(spared))
    if not nodes:
        return None
    node = dice.choose(nodes)
    there = {name: pids for name, (at, pids) in sorted(brokers.items()) if at == node}
    processes = {f"{name} {process}": pid for name, pids in there.items() for process, pid in pids.items()}
    return Deed(kind, f"the node of broker {', '.join(there)}", node, processes)


def node_kills(nodes: int) -> int:
    """How many nodes of brokers may be killed in one run: a majority stays."""
    return (nodes - 1) // 2


class FaultAgent:
    """Sends signals to processes of its node, and to those of actors alone."""

    def __init__(self, silent_s: float = AGENT_SILENT_S) -> None:
        self._stopped: set[int] = set()
        self._lock = threading.Lock()
        self._asked = threading.Event()
        self._watching = threading.Thread(target=self._watch, args=(silent_s,), name="watch", daemon=True)
        self._watching.start()

    def kill(self, pids: Sequence[int]) -> list[int]:
        """End processes at once; those that were there."""
        self._asked.set()
        return [pid for pid in pids if _signal(pid, signal.SIGKILL)]

    def kill_node(self) -> None:
        """End all that Ray runs on this node, with this process, as a machine that loses its power does."""
        for pid in self._node():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    @staticmethod
    def _node() -> list[int]:
        """All that Ray runs on this node, but this process. Raises IllegalStateError where no raylet has started it."""
        raylet = os.getppid()
        if _name(raylet) != RAYLET:
            raise IllegalStateError(f"process {raylet} has started this one and is no {RAYLET}: nothing is done")
        return [pid for pid in (raylet, *_below(raylet)) if pid != os.getpid()]

    def pause(self, pids: Sequence[int], seconds: float) -> list[int]:
        """Stop processes, which go on after so many seconds; those that were there."""
        return self._pause(pids, seconds, _signal)

    def pause_node(self, seconds: float) -> list[int]:
        """Stop all that Ray runs on this node, but this process, for so many seconds."""
        return self._pause(self._node(), seconds, _send)

    def _pause(self, pids: Sequence[int], seconds: float, send: Callable[[int, signal.Signals], bool]) -> list[int]:
        self._asked.set()
        with self._lock:
            found = [pid for pid in pids if send(pid, signal.SIGSTOP)]
            self._stopped.update(found)
        timer = threading.Timer(seconds, self._go_on, (found,))
        timer.daemon = True
        timer.start()
        return found

    def go_on(self) -> None:
        """Let all go on that is stopped."""
        self._asked.set()
        self._go_on(list(self._stopped))

    def alive(self) -> bool:
        """Whether the agent is there, which it stays for a while because it was asked."""
        self._asked.set()
        return True

    def _go_on(self, pids: Sequence[int]) -> None:
        with self._lock:
            for pid in pids:
                if pid in self._stopped:
                    self._stopped.discard(pid)
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)

    def _watch(self, silent_s: float) -> None:
        while self._asked.wait(silent_s):
            self._asked.clear()
        self._go_on(list(self._stopped))
        os._exit(0)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _below(top: int) -> list[int]:
    """All descendants of a process."""
    found = []
    with suppress(OSError):
        for task in Path(f"/proc/{top}/task").iterdir():
            for child in map(int, task.joinpath("children").read_text().split()):
                found += [child, *_below(child)]
    return found


def _signal(pid: int, number: signal.Signals) -> bool:
    """Send a signal to an actor's process; False when there is none. Raises IllegalStateError for another process."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    if words and not words.startswith(ACTOR):
        raise IllegalStateError(f"process {pid} is no actor of Ray: no signal was sent")
    return _send(pid, number)


def _send(pid: int, number: signal.Signals) -> bool:
    """Send a signal to a process; False when there is none."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
