"""Ray nodes on a network of their own: each in a network, process and mount namespace, joined by a bridge.

A node's cable can be pulled and put back.  A head needs a process namespace of its own, because Ray refuses to start
another one where it sees one running.  Needs root and the commands ip, unshare and nsenter.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.cluster import rays
from tests.cluster.load import until

NETWORK = "10.213.77"
PORT = 6390
TOOLS = ("ip", "unshare", "nsenter")


def missing() -> str:
    """Why there can be no namespaces here; "" when there can."""
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        return f"commands are missing: {', '.join(absent)}"
    tried = subprocess.run(
        ["unshare", "--net", "--pid", "--fork", "--mount-proc", "ip", "link", "add", "rb0", "type", "bridge"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"network namespaces are not permitted: {tried.stderr.strip()}" if tried.returncode else ""


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


class Space:
    """One namespace and what runs in it; all of that ends with it. ``number`` is the last part of its address."""

    def __init__(self, number: int, then: str) -> None:
        """``then``: what it does, in the language of sh, once it is told to go on."""
        self.number = number
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", f"read go; {then}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=rays.ROOT,
        )
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        self.pid = int(until(lambda: children.read_text().split(), "the namespace is made")[0])
        until(lambda: os.readlink(f"/proc/{self.pid}/ns/net") != os.readlink("/proc/self/ns/net"), "it is another one")

    @property
    def address(self) -> str:
        return f"{NETWORK}.{self.number}"

    def go_on(self) -> None:
        assert self._holder.stdin is not None
        self._holder.stdin.write(b"\n")
        self._holder.stdin.flush()

    def ended(self) -> bool:
        return self._holder.poll() is not None

    def ip(self, *command: str) -> None:
        _run("nsenter", "-t", str(self.pid), "-n", "ip", *command)

    def command(self, *arguments: str) -> list[str]:
        """A command line that runs here."""
        return ["nsenter", "-t", str(self.pid), "-n", "-p", "-m", *arguments]

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()


class Network:
    """A head and ``count`` nodes with the resource "broker". ``spaces[0]`` is the head's."""

    def __init__(self, count: int, stack: ExitStack) -> None:
        self._hub = self._space(stack, 0, "exec sleep infinity")
        self._hub.ip("link", "add", "bridge", "type", "bridge")
        self._hub.ip("link", "set", "bridge", "up")
        self.spaces = [self._space(stack, number, self._ray(number)) for number in range(1, count + 2)]
        for space in self.spaces:
            self._plug(space)
        head, *others = self.spaces
        self.address = f"{head.address}:{PORT}"
        head.go_on()
        until(lambda: self._listens(head), "the head listens")
        for number, space in enumerate(others, start=2):
            space.go_on()  # One after the other: they take the names of their sockets in one folder.
            until(lambda number=number: self._joined(number), f"node {space.number} joins")

    @staticmethod
    def _space(stack: ExitStack, number: int, then: str) -> Space:
        space = Space(number, then)
        stack.callback(space.close)
        return space

    def _ray(self, number: int) -> str:
        where = f"--head --port={PORT} --include-dashboard=false" if number == 1 else f"--address={NETWORK}.1:{PORT}"
        resources = {} if number == 1 else {"broker": 1}
        return (
            f"exec {sys.executable} -m ray.scripts.scripts start {where} --node-ip-address={NETWORK}.{number}"
            f" --num-cpus=0 --object-store-memory=80000000 --resources='{json.dumps(resources)}' --disable-usage-stats"
            f" --block > {rays.folder()}/node{number}.log 2>&1"
        )

    def _plug(self, space: Space) -> None:
        port = f"port{space.number}"
        self._hub.ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(space.pid))
        self._hub.ip("link", "set", port, "master", "bridge")
        self._hub.ip("link", "set", port, "up")
        space.ip("link", "set", "lo", "up")
        space.ip("addr", "add", f"{space.address}/24", "dev", "eth0")
        space.ip("link", "set", "eth0", "up")

    def _listens(self, head: Space) -> bool:
        assert not head.ended(), f"the head could not start: {said(head)}"
        probe = f"import socket; socket.create_connection(('{head.address}', {PORT}), 1)"
        command = head.command(sys.executable, "-c", probe)
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    @staticmethod
    def _joined(number: int) -> bool:
        """So many nodes have said that they run."""
        logs = [rays.folder() / f"node{n}.log" for n in range(1, number + 1)]
        return all(log.exists() and "Ray runtime started" in log.read_text() for log in logs)

    def cut(self, *spaces: Space) -> None:
        """Pull the cables of these nodes: none reaches any other."""
        for space in spaces:
            self._hub.ip("link", "set", f"port{space.number}", "down")

    def heal(self) -> None:
        for space in self.spaces:
            self._hub.ip("link", "set", f"port{space.number}", "up")


@contextmanager
def running_network(count: int) -> Iterator[Network]:
    """The network while the block runs."""
    made = rays.folder()
    with ExitStack() as stack:
        stack.callback(rays.end_all, made)
        yield Network(count, stack)


def said(space: Space) -> str:
    """The end of what a node has written."""
    log = rays.folder() / f"node{space.number}.log"
    return log.read_text()[-1000:] if log.exists() else "nothing"


class Agent:
    """A driver in a namespace that does what it is told, by lines of JSON: [function, arguments]."""

    def __init__(self, space: Space, address: str, cluster: str) -> None:
        self.space = space
        command = space.command(sys.executable, "-m", "tests.cluster.partition_agent", address, cluster)
        self._process = subprocess.Popen(
            command, cwd=rays.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, function: str, *arguments: Any) -> Any:
        """The answer, or {"error": name of the exception, "text": …}."""
        self.tell(function, *arguments)
        return self.answer()

    def tell(self, function: str, *arguments: Any) -> None:
        """Ask without waiting; :meth:`answer` has to be called for each."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([function, arguments]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the agent at {self.space.address} has ended; what its node said: {said(self.space)}"
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
