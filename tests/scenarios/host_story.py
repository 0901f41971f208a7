"""Plays a story about one host: what its clients are told, where the dead go, what an administrator does.

A story of a host begins with the verb ``host``; everything is durable at the end of each line. Verbs:

    host [property=value …]             a host on an empty store
    queue|topic NAME [attribute=value …] [owner=X] | dmq | destroy NAME | update NAME attribute=value …
    client X                            a connection; one comes with the first verb that names it
    producer X NAME | consume X NAME [limit=N] [selector="…"]
    send X a b [volatile] [priority=N] [ttl=S] [delay=S] [txn=N] [NAME=VALUE …]
    part X a work=UNIT number=N [end=true] [as send]                a message of a unit of work
    pause|resume NAME producers|consumers|all|insertion | purge NAME
    schedule X ID a every="…" [zone=…] [repeat=N] [catch_up=true]   X's producer makes a recurring schedule
    schedules | unschedule ID                                       what an administrator sees and does
    ack|fail|reject|putback X a [reason=…]
    browse NAME [selector="…"]          what a browser sees; ``dead NAME`` with the record of each death
    begin X N | stage X N a … | prepare X N | decide X N commit|rollback      a branch of a distributed transaction
    memory MIB                          so much of 1000 MiB of memory is used, and the host looks
    transactions | settle ID commit|rollback                                  what an administrator sees and does
    lost X | tick SECONDS | restart [property=value …] | held NAME …

A line tells what clients hear, in the order of their names, then what is written into the log.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from raybroker.content.death_records import deaths_of
from raybroker.content.unit_of_work import WORK_END, WORK_NUMBER, WORK_UNIT
from raybroker.core.invariants import check
from raybroker.engine.memory.memory_protection import LOOK_MS
from raybroker.model.errors import BrokerError
from tests.unit.engine.rig import DMQ, Client, FakeMemory, Rig
from tests.unit.engine.scheduling import asked

_KNOWN = frozenset(("priority", "ttl", "delay", "txn"))
_REASON = "JMS_SUN_DMQ_UNDELIVERED_REASON"
_SHOWN = ("vote", "state", "heuristic")


class HostStory:
    """``clients`` by name; ``handles``: producer and consumer of each."""

    def __init__(self) -> None:
        self.rig: Rig
        self.clients: dict[str, Client] = {}
        self.handles: dict[tuple[str, str], int] = {}
        self._heard = 0

    def tell(self, line: str) -> str:
        verb, *words = shlex.split(line)
        options = {key: _value(text) for key, _, text in (w.partition("=") for w in words if "=" in w)}
        plain = [w for w in words if "=" not in w]
        try:
            found = str(_VERBS[verb](self, plain, options) or "")
        except BrokerError as error:
            found = f"refused: {error.code}"
        self.rig.sync()
        for destination in self.rig.host.registry.destinations.values():
            check(destination)
        told = [found, *self._told(), *(f"log: {' '.join(text.split())}" for text in self.rig.reports[self._heard :])]
        self._heard = len(self.rig.reports)
        return "; ".join(filter(None, told)) or "ok"

    def _told(self) -> list[str]:
        rows: list[str] = []
        for name, client in sorted(self.clients.items()):
            got = client.got()
            if got:
                rows.append(f"deliver {name} {' '.join(got)}")
            for row in client.peer.take():
                rows += self._heard_by(name, row)
        return rows

    def _heard_by(self, name: str, row: tuple[Any, ...]) -> list[str]:
        if row[0] == "sent":
            codes = [f"{r.code} for {r.end - r.start}" for r in row[4]]
            return [f"sent {name} {row[3]}" + (f" ({', '.join(codes)})" if codes else "")]
        if row[0] == "gate":
            return [f"{row[2]} {name}"]
        return [f"{row[1]} {name}"] if row[0] == "event" else []

    # ---- host and destinations -------------------------------------------------------------------------------------

    def host(self, words: list[str], options: dict[str, Any]) -> None:
        self.rig = Rig(memory=FakeMemory(), **{key.replace(".", "__"): value for key, value in options.items()})

    def queue(self, words: list[str], options: dict[str, Any]) -> None:
        self.rig.create(words[0], owner=options.pop("owner", None), **options)

    def topic(self, words: list[str], options: dict[str, Any]) -> None:
        self.rig.create(words[0], "topic", owner=options.pop("owner", None), **options)

    def dmq(self, words: list[str], options: dict[str, Any]) -> None:
        self.rig.create(DMQ)

    def destroy(self, words: list[str], options: dict[str, Any]) -> None:
        self.rig.host.removal.destroy(words[0], lambda: None)

    def update(self, words: list[str], options: dict[str, Any]) -> None:
        self.rig.host.administration.update(words[0], options, lambda: None)

    def pause(self, words: list[str], options: dict[str, Any]) -> None:
        self.rig.host.administration.pause(words[0], words[1], 0)

    def resume(self, words: list[str], options: dict[str, Any]) -> None:
        self.rig.host.administration.resume(words[0], words[1])

    def purge(self, words: list[str], options: dict[str, Any]) -> None:
        self.rig.host.administration.purge(words[0], lambda: None, self._kind(words[0]))

    def tick(self, words: list[str], options: dict[str, Any]) -> None:
        self.rig.tick(round(float(words[0]) * 1000))

    def restart(self, words: list[str], options: dict[str, Any]) -> None:
        self.rig = self.rig.restart(**{key.replace(".", "__"): value for key, value in options.items()})
        self.clients.clear()
        self._heard = 0

    def memory(self, words: list[str], options: dict[str, Any]) -> str:
        assert self.rig.memory is not None
        self.rig.memory.used = int(words[0])
        self.rig.tick(LOOK_MS)
        return self.rig.host.memory.level.name.lower()

    def held(self, words: list[str], options: dict[str, Any]) -> str:
        return ", ".join(f"{name} {self.rig.held(name)}" for name in words)

    # ---- clients ---------------------------------------------------------------------------------------------------

    def client(self, words: list[str], options: dict[str, Any]) -> Client:
        name = words[0]
        if name not in self.clients:
            self.clients[name] = Client(self.rig, name, name)
        return self.clients[name]

    def new_client(self, words: list[str], options: dict[str, Any]) -> None:
        self.client(words, options)

    def _asked(self, client: Client, op: str, **args: Any) -> str:
        """A request whose failure is part of the story."""
        ((verb, _, answer, *_),) = client._call(op, args, sync=True)
        if verb == "failed":
            return f"refused: {answer}"
        return " ".join(f"{key} {value}" for key, value in (answer or {}).items() if key in _SHOWN)

    def producer(self, words: list[str], options: dict[str, Any]) -> str:
        client, handle = self.client(words, {}), 1
        self.handles[words[0], "producer"] = handle
        number = int.from_bytes(words[0].encode(), "big")
        kind = self._kind(words[1])
        return self._asked(client, "open_producer", handle=handle, name=words[1], type=kind, producer=number)

    def consume(self, words: list[str], options: dict[str, Any]) -> str:
        client, handle = self.client(words, {}), 2
        self.handles[words[0], "consumer"] = handle
        args = {
            "handle": handle,
            "name": words[1],
            "type": self._kind(words[1]),
            "flow": "prefetch",
            "no_ack": False,
            "recalls": True,
        }
        ((verb, _, answer, *_),) = client._call("open_consumer", args | {"limit": 100} | options, sync=False)
        if verb == "failed":
            return f"refused: {answer}"
        client.epochs[handle] = answer["epoch"]
        return ""

    def _kind(self, name: str) -> str:
        return "topic" if ("topic", name) in self.rig.host.registry.destinations else "queue"

    def send(self, words: list[str], options: dict[str, Any]) -> None:
        name, *bodies = [w for w in words if w != "volatile"]
        properties = {key: value for key, value in options.items() if key not in _KNOWN}
        self.clients[name].send(
            1,
            *bodies,
            persistent="volatile" not in words,
            priority=options.get("priority", 4),
            ttl=round(float(options.get("ttl", 0)) * 1000),
            delay=round(float(options.get("delay", 0)) * 1000),
            txn=options.get("txn", 0),
            properties=properties,
        )

    def part(self, words: list[str], options: dict[str, Any]) -> None:
        names = {"work": WORK_UNIT, "number": WORK_NUMBER, "end": WORK_END}
        self.send(words, {names.get(key, key): value for key, value in options.items()})

    def schedule(self, words: list[str], options: dict[str, Any]) -> str:
        client, name, body = words
        more = {key: options[key] for key in ("repeat", "catch_up") if key in options}
        args = asked(name, options["every"], body, timezone=options.get("zone", "UTC"), **more)
        return self._asked(self.clients[client], "schedule", handle=1, **args)

    def schedules(self, words: list[str], options: dict[str, Any]) -> str:
        rows = [f"{row['id']} {row['state']} after {row['fired']}" for row in self.rig.host.schedules.schedule_rows()]
        return ", ".join(rows) or "none"

    def unschedule(self, words: list[str], options: dict[str, Any]) -> None:
        self.rig.host.schedules.destroy(words[0], lambda: None)

    def ack(self, words: list[str], options: dict[str, Any]) -> None:
        self.clients[words[0]].ack(2, *words[1:])

    def _outcome(self, outcome: str, words: list[str], options: dict[str, Any]) -> None:
        for body in words[1:]:
            self.clients[words[0]].settle(2, outcome, body, reason=str(options.get("reason", "")))

    def browse(self, words: list[str], options: dict[str, Any]) -> str:
        looker = Client(self.rig)
        args = {"handle": 1, "name": words[0], "type": self._kind(words[0]), "selector": options.get("selector")}
        refused = self._asked(looker, "open_browser", **args)
        if not refused:
            looker.ok("browse", handle=1, max=1000)
        found = refused or "sees " + (" ".join(looker.got()) or "nothing")
        looker.session.close()
        return found

    def dead(self, words: list[str], options: dict[str, Any]) -> str:
        rows = []
        for body, own in self.rig.waiting(words[0]):
            comment = own.get("JMS_SUN_DMQ_UNDELIVERED_COMMENT", "")
            rows.append(
                f"{body or '(no body)'} {own[_REASON]} from {own['RAYBROKER_ORIGIN']} on"
                f" {own['JMS_SUN_DMQ_DEAD_BROKER']} after {own['JMS_SUN_DMQ_DELIVERY_COUNT']}"
                + (f" ({comment})" if comment else "")
                + "".join(f", {row['type']}:{row['queue']} {row['reason']} before" for row in deaths_of(own)[:-1])
            )
        return " | ".join(rows) or "nobody"

    def lost(self, words: list[str], options: dict[str, Any]) -> None:
        self.clients.pop(words[0]).session.close()

    # ---- transactions ----------------------------------------------------------------------------------------------

    def begin(self, words: list[str], options: dict[str, Any]) -> str:
        return self._asked(self.clients[words[0]], "txn_begin", txn=int(words[1]), key=words[1].encode())

    def stage(self, words: list[str], options: dict[str, Any]) -> str:
        client, bodies = self.clients[words[0]], words[2:]
        return self._asked(client, "txn_stage", txn=int(words[1]), acks=client.acks(2, *bodies) if bodies else [])

    def prepare(self, words: list[str], options: dict[str, Any]) -> str:
        args = {"txn": int(words[1]), "key": words[1].encode(), "acks": [], "coordinator": ""}
        return self._asked(self.clients[words[0]], "txn_prepare", **args)

    def decide(self, words: list[str], options: dict[str, Any]) -> str:
        args = {"key": words[1].encode(), "commit": words[2] == "commit"}
        return self._asked(self.client(words, {}), "txn_decide", **args)

    def forget(self, words: list[str], options: dict[str, Any]) -> str:
        return self._asked(self.client(words, {}), "txn_forget", key=words[1].encode())

    def transactions(self, words: list[str], options: dict[str, Any]) -> str:
        rows = [f"{row['id']} {row['state']}" for row in self.rig.host.transactions.transaction_rows()]
        return ", ".join(rows) or "none"

    def settle(self, words: list[str], options: dict[str, Any]) -> None:
        self.rig.host.transactions.decide_by_hand(int(words[0]), words[1] == "commit", lambda: None)


def _value(text: str) -> Any:
    return int(text) if text.isdigit() else {"true": True, "false": False}.get(text, text)


_VERBS: dict[str, Callable[[HostStory, list[str], dict[str, Any]], object]] = {
    **{
        name: getattr(HostStory, name)
        for name in (
            "host",
            "queue",
            "topic",
            "dmq",
            "destroy",
            "update",
            "pause",
            "tick",
            "restart",
            "held",
            "producer",
            "consume",
            "send",
            "ack",
            "browse",
            "dead",
            "lost",
            "begin",
            "stage",
            "prepare",
            "decide",
            "transactions",
            "settle",
            "memory",
            "forget",
            "part",
            "resume",
            "purge",
            "schedule",
            "schedules",
            "unschedule",
        )
    },
    "client": HostStory.new_client,
    "fail": lambda story, words, options: story._outcome("fail", words, options),
    "reject": lambda story, words, options: story._outcome("reject", words, options),
    "putback": lambda story, words, options: story._outcome("release", words, options),
}
