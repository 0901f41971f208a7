"""The standby processes of one broker: started beside it, told to become a lost broker, and replaced.

To start a process of Ray takes a second on an idle machine, and ten on a busy one; a process that runs already serves a
lost broker's messages as soon as it has read them.  A broker that may have to take another one over keeps
``raybroker.cluster.standby`` brokers beside itself, and ``raybroker.cluster.standby_hosts`` hosts for each.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from raybroker.actors import runtime
from raybroker.actors.broker_spec import BrokerSpec
from raybroker.actors.hosts.host_spec import HostSpec
from raybroker.actors.standby import assignment
from raybroker.model.errors import BrokerError
from raybroker.model.settings.settings import ConfigView
from raybroker.system import entropy
from raybroker.transport.daemon_calls import in_daemon_thread

STANDBY: Final = "raybroker.cluster.standby"
HOSTS: Final = "raybroker.cluster.standby_hosts"
LOOK_S: Final = 2.0
"""How often a broker looks whether it has as many as it should."""
FIRST_S: Final = 10.0
"""How long a broker that has started waits with the first one: the processors are for its clients then."""
AGAIN_S: Final = 15.0
"""How long none is started after one was taken: a lost broker that is coming back goes first."""
START_S: Final = 120.0
"""How long one may take to start; on a busy machine a process of Ray takes half a minute."""
ANSWER_S: Final = 2.0
"""How long one may take to say that it stands by."""
BECOME_S: Final = 5.0
"""How long one may take to answer that it begins; another process is started in place of one that does not."""
BROKER: Final = "broker"
HOST: Final = "host"

log = logging.getLogger("raybroker.cluster")


@dataclass(eq=False)
class Standby:
    """A standby process.  ``ready``: it has answered when it was asked last."""

    name: str
    actor: Any
    ready: bool = False


class StandbyProcesses:
    """``broker`` and ``host``: the classes of actors; ``spec``: of the broker that keeps them; ``serving``: whether it
    takes clients and its own hosts serve, before which it starts none."""

    def __init__(
        self,
        spec: BrokerSpec,
        node: str,
        config: ConfigView,
        *,
        broker: type[Any],
        host: type[Any],
        serving: Callable[[], bool],
    ) -> None:
        self._spec = spec
        self._node = node
        self._config = config
        self._classes = {BROKER: broker, HOST: host}
        self._serving = serving
        self._idle: dict[str, list[Standby]] = {BROKER: [], HOST: []}
        self._found = False
        self._closed = False
        self._not_before_s = 0.0

    # ---- those there are

    async def run(self) -> None:
        """Keep as many as there should be, for as long as the broker lives."""
        await asyncio.sleep(FIRST_S)
        while True:
            await asyncio.sleep(LOOK_S)
            if self._serving():
                await self.keep()

    def ready(self) -> dict[str, int]:
        """Return kind → how many stand by."""
        return {kind: sum(one.ready for one in idle) for kind, idle in self._idle.items()}

    async def keep(self) -> None:
        """Start what is missing, one after the other, and end what is too many."""
        if not self._found:
            await in_daemon_thread(self._find)
            self._found = True
        for kind, wanted in self._wanted().items():
            idle = self._idle[kind]
            for one in idle[wanted:]:
                idle.remove(one)
                await in_daemon_thread(runtime.kill, one.actor)
            await asyncio.gather(*map(self._ask_standby, idle))
            while len(idle) < wanted and not self._closed and asyncio.get_running_loop().time() >= self._not_before_s:
                one = await in_daemon_thread(self._make, kind)
                idle.append(one)
                await self._ask_standby(one, START_S)
                if not one.ready:
                    log.warning("standby %s of broker %s does not answer yet", kind, self._spec.broker)
                    return

    def _wanted(self) -> dict[str, int]:
        brokers = 0 if self._closed else self._config[STANDBY]
        return {BROKER: brokers, HOST: brokers * self._config[HOSTS]}

    async def _ask_standby(self, one: Standby, timeout_s: float = ANSWER_S) -> None:
        try:
            await runtime.call(one.actor.stand_by, timeout_s=timeout_s)
        except BrokerError as error:
            if one.ready:
                log.warning("standby process %s does not answer: %s", one.name, error)
            one.ready = False
        else:
            one.ready = True

    def _find(self) -> None:
        """Take up those that an earlier process of this broker has started; a thread."""
        for name in runtime.list_actors(self._name("")):
            actor = runtime.find_actor(name)
            if actor is not None and assignment.told(name) is None:
                kind = name.rpartition("/")[2].partition("-")[0]
                self._idle[kind].append(Standby(name, actor))

    def _make(self, kind: str) -> Standby:
        spec = self._spec
        name = self._name(f"{kind}-{entropy.token(4).hex()}")
        given: Any = spec
        if kind == HOST:
            given = HostSpec(spec.cluster, spec.broker, "", "", spec.directory, b"", spec.config)
        return Standby(name, runtime.create_actor(self._classes[kind], given, name, name=name, node=self._node))

    def _name(self, what: str) -> str:
        return runtime.standby_name(self._spec.cluster, self._spec.broker, self._spec.tenure, what)

    def end_all(self) -> None:
        """End those that stand by, and start none any more; what became a broker is that broker's. Blocks."""
        self._closed = True
        for idle in self._idle.values():
            for one in idle:
                runtime.kill(one.actor)
            idle.clear()

    # ---- those that are taken

    async def take_host(self, spec: HostSpec) -> Standby | None:
        """Return a standby by which the host is found from now on; None: there is none, and another process is
        needed."""
        one = self._take_idle(HOST)
        if one is not None:
            name = runtime.host_name(spec.cluster, spec.broker, spec.host, spec.tenure)
            await in_daemon_thread(runtime.also_name, name, one.name, assignment.of_host(spec))
        return one

    async def become_host(self, one: Standby, spec: HostSpec) -> bool:
        """Have it begin as that host; False: it does not, and is ended."""
        name = runtime.host_name(spec.cluster, spec.broker, spec.host, spec.tenure)
        return await self._become(one, name, assignment.of_host(spec))

    async def become_broker(self, spec: BrokerSpec) -> Any | None:
        """Return a standby that becomes that broker; None: there is none that does, and another process is needed."""
        name = runtime.broker_name(spec.cluster, spec.broker, spec.tenure)
        one = self._take_idle(BROKER)
        return one.actor if one is not None and await self._become(one, name, assignment.of_broker(spec)) else None

    def _take_idle(self, kind: str) -> Standby | None:
        self._not_before_s = asyncio.get_running_loop().time() + AGAIN_S
        one = next((one for one in self._idle[kind] if one.ready and not self._closed), None)
        if one is not None:
            self._idle[kind].remove(one)
        return one

    async def _become(self, one: Standby, name: str, told: str) -> bool:
        try:
            await runtime.call(one.actor.become, name, told, timeout_s=BECOME_S)
        except BrokerError as error:
            log.warning("standby process %s does not become %s, and is ended: %s", one.name, name, error)
            await in_daemon_thread(self._give_up, one, name)
            return False
        return True

    @staticmethod
    def _give_up(one: Standby, name: str) -> None:
        runtime.kill(one.actor)
        runtime.unname(name)
