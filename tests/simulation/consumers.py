"""Consumers of the simulation: how fast they are, what they acknowledge and when, and how they go away."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from raybroker.client.consumer.prefetch.flow_control import BatchFlow, CreditFlow, PrefetchFlow
from raybroker.content.headers import decode_header
from raybroker.model.blocks.block import Block
from raybroker.model.blocks.large_block import missing
from raybroker.model.causes import FAILS
from raybroker.model.errors import IllegalStateError, InvalidDestinationError
from tests.simulation.clients import Machine
from tests.simulation.credit_pool import CreditPool
from tests.simulation.messages import SELECTORS, body_of
from tests.simulation.plan import MS, ConsumerPlan
from tests.simulation.watch import values_of

if TYPE_CHECKING:
    from tests.simulation.surroundings import Surroundings

NEVER = 1 << 62


class SimConsumer:
    """``buffer`` and ``unacked`` hold (tag, value, attempt)."""

    def __init__(self, world: Surroundings, machine: Machine, plan: ConsumerPlan) -> None:
        self.world = world
        self.machine = machine
        self.plan = plan
        self.kind, self.name = world.plan.destinations[plan.destination].key
        self.selector = plan.selector
        self.handle = 0
        self.epoch = 0
        self.number = 0
        self.buffer: deque[tuple[int, int, int]] = deque()
        self.unacked: list[tuple[int, int, int]] = []
        self.flow: CreditFlow | PrefetchFlow | BatchFlow | CreditPool = CreditFlow(1, 50)
        self.slow_until = 0
        self._old: tuple[int, list[tuple[int, int, int]]] | None = None
        self._min_tag = 0
        self._got = 0
        """Last tag that the application got, if it tells."""
        self._working = False
        self._seen = 0
        """The highest tag that the application got."""
        self._steps = 0
        self._states: dict[int, bytes] = {}
        """Tag of a message that is to come → its checkpoint."""
        self._marks: dict[int, int] = {}
        """Tag of a delivery that is to come → its fencing number."""
        self._silent = False
        """What it had was taken back, and it has not said anything since."""

    # ---- the connection --------------------------------------------------------------------------------------------

    def open(self, handle: int = 0) -> None:
        if self.machine.connection is None or not self.machine.ready:
            return
        if self.world.loop.now < self.plan.from_time and not self.world.healing:
            self.world.loop.after(100 * MS, self._open_again)
            return
        handle = self.handle = handle or self.machine.new_handle()
        plan = self.plan
        args: dict[str, Any] = {
            "handle": handle,
            "name": self.name,
            "type": self.kind,
            "flow": plan.flow,
            "limit": plan.limit,
            "no_ack": plan.ack == "none",
            "selector": self.selector,
            "no_local": plan.no_local,
            "lease_ms": plan.lease_ms,
            "drain": plan.drain,
            "home": plan.at,
            "recalls": plan.recalls,
            "shares": plan.shares,
            "fenced": plan.fenced,
            "labels": list(plan.labels),
            "batch": plan.batch.as_arguments() if plan.batch is not None else None,
            "owner": plan.session and f"{self.machine.name}/{plan.session}",
        }
        if self.kind == "topic":
            subscription = {"name": plan.subscription, "durable": plan.durable, "shared": plan.shared}
            args["subscription"] = subscription if plan.subscription else None

        def opened(result: Any, code: str | None) -> None:
            if handle != self.handle or self.epoch:
                return
            if code is not None:
                self.handle = 0
                self.world.opening_failed(self.plan.destination, code, self._open_again)
                return
            self.epoch = result["epoch"]
            limit = result["limit"]
            self.flow = (
                BatchFlow()
                if plan.batch is not None
                else CreditPool(limit)
                if plan.drain
                else CreditFlow(limit, plan.percent)
                if plan.flow == "credit"
                else PrefetchFlow(limit)
            )
            self._min_tag = self._got = self._seen = 0
            self._acknowledge_late()
            self._go_on()

        self.machine.call("open_consumer", args, opened)

    def _open_again(self) -> None:
        if not self.handle:
            self.open()

    def _forget(self) -> None:
        if self.epoch:
            self._old = self.epoch, list(self.unacked)
        self.epoch = 0
        self._marks.clear()
        self._states.clear()
        self.buffer.clear()
        self.unacked.clear()

    def lost(self) -> None:
        self._forget()
        self.handle = 0

    def crash(self) -> None:
        self.lost()

    def destroyed(self, *, halted: bool) -> None:
        if self.handle:
            self.close()

    def close(self) -> None:
        """Leave, and come back under the same handle or another one."""
        if not self.epoch or self.machine.connection is None:
            return
        handle = self.handle
        args = {"handle": handle, "seen": self._seen if self._min_tag != NEVER else -1}
        self._forget()
        self.handle = 0
        if self.plan.selector is not None and self.world.rng.random() < 0.2:
            self.selector = self.world.rng.choice([None, *SELECTORS])
        self.machine.call("close_consumer", args, lambda result, code: None)
        again = handle if self.world.rng.random() < 0.5 else 0
        connection = self.machine.connection
        self.world.loop.after(
            self.world.rng.randrange(40 * MS),
            lambda: self.open(again) if self.machine.connection is connection and not self.handle else None,
        )

    def unsubscribe(self) -> None:
        """End the subscription some time after leaving it, if nobody else uses it; coming back makes a new one."""
        self.close()
        plan = self.plan
        if plan.subscription:
            self.world.loop.after(
                self.world.rng.randrange(30 * MS), self._end_subscription, self.machine.client_id or ""
            )

    def _end_subscription(self, client_id: str) -> None:
        host = self.world.running
        if host is not None and not self.handle:
            with contextlib.suppress(IllegalStateError, InvalidDestinationError):
                host.subscriptions.unsubscribe(self.name, client_id, self.plan.subscription, lambda: None)

    def release(self) -> None:
        """Recover: give everything back and start again."""
        if not self.epoch or self.plan.ack == "none" or self._min_tag == NEVER:
            return
        epoch = self.epoch
        self.buffer.clear()
        self.unacked.clear()
        self._min_tag = NEVER

        def released(next_tag: Any, code: str | None) -> None:
            if self.epoch != epoch:
                return
            assert code in (None, "invalid_destination", "store"), code
            self.machine.deliver_now(self.handle)
            self.flow.restart()
            self._min_tag = next_tag or 0
            self._go_on()

        credit = 0 if isinstance(self.flow, CreditPool) else self.flow.limit
        args = {
            "handle": self.handle,
            "epoch": epoch,
            "credit": credit,
            "consumed": self._got,
            "seen": self._seen,
            "delay_ms": self.world.rng.choice((0, 0, 30)),
        }
        self.machine.call("release", args, released)

    @property
    def _may_be_void(self) -> bool:
        """What is void may be told after what came in its stead, if one waited for the disk and the other did not."""
        return "units" in self.world.plan.features

    # ---- messages --------------------------------------------------------------------------------------------------

    def delivered(self, epoch: int, tag: int, attempt: int, block: Block) -> None:
        fence = self._marks.pop(tag, 0)
        if epoch != self.epoch or tag < self._min_tag:
            return
        assert bool(fence) == self.plan.fenced, "a delivery comes without its fencing number"
        if missing(block):
            self._missed(tag)
            return
        values, count = values_of(block), block.count
        for index in {0, count - 1}:
            root = self.world.watch.codec.root(values[index])
            most = self.world.body_bytes_max[root >> 32]
            assert block.body(index) == body_of(root, most), "a body is not what was sent"
            stamped = self.world.unit_of(values[index])
            unit = decode_header(block.header(index)).unit
            assert unit == stamped or (stamped is None and unit in self.world.default_units), f"{unit} is not {stamped}"
        for index, value in enumerate(values):
            state = self._states.pop(tag + index, None)
            assert state is None or state.startswith(b"%d:" % value), "a message comes with another's checkpoint"
        self._check_window(count)
        self.buffer.extend((tag + index, value, attempt) for index, value in enumerate(values))
        ask = self.flow.arrived(count)
        if ask:
            self._ask(ask)
        self._go_on()

    def _missed(self, tag: int) -> None:
        """The body of a large message could not be read: it is for anybody."""
        ask = self.flow.arrived(1) + self.flow.consumed(1)
        if self.plan.ack != "none":
            self._up("settle_deliveries", 0, "unseen", -1, "", [(tag, tag)])
        if ask:
            self._ask(ask)
        self._go_on()

    def _check_window(self, count: int) -> None:
        flow = self.flow
        if isinstance(flow, CreditPool):
            flow.check(count)
        elif isinstance(flow, BatchFlow):
            assert flow.asked, f"{count} messages came, and no batch was asked for"
        elif isinstance(flow, CreditFlow):
            assert flow.limit < 0 or count <= flow.to_come, f"{count} messages came, {flow.to_come} were granted"
        elif flow.limit > 0 and self.plan.ack != "none" and not self.plan.lease_ms and not self._may_be_void:
            here = len(self.buffer) + len(self.unacked) + count
            assert here <= flow.limit, f"{here} messages are here, the prefetch limit is {flow.limit}"
        elif flow.limit == 0:
            assert count <= flow.polls, f"{count} messages came, {flow.polls} were polled for"

    def _ask(self, count: int) -> None:
        self._up("drain" if isinstance(self.flow, CreditPool) else "credit", count)

    def drained(self, epoch: int, unused: int | None) -> None:
        """Credit is void; None: there is something to be had."""
        flow = self.flow
        if epoch == self.epoch and self._min_tag != NEVER and isinstance(flow, BatchFlow):
            assert flow.asked, "a batch has ended that was not asked for"
            flow.ended()
            self._go_on()
        if epoch != self.epoch or self._min_tag == NEVER or not isinstance(flow, CreditPool):
            return
        if unused is not None:
            flow.drained(unused)
        elif ask := flow.ready():
            self._ask(ask)

    def withdrawn(self, epoch: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Deliveries are void: what is here of them is forgotten."""
        if epoch != self.epoch or self._min_tag == NEVER:
            return
        void = {tag for first, last in ranges for tag in range(first, last + 1)}
        before = len(self.buffer)
        self.buffer = deque(item for item in self.buffer if item[0] not in void)
        self.unacked = [item for item in self.unacked if item[0] not in void]
        ask = self.flow.consumed(before - len(self.buffer)) if before > len(self.buffer) else 0
        if ask:
            self._ask(ask)
        if self.plan.lease_ms:
            self._silent = True
            self._go_on()

    def mark(self, epoch: int, tag: int, fence: int) -> None:
        if epoch == self.epoch:
            assert self.plan.fenced, "a consumer has a fencing number that it did not ask for"
            self._marks[tag] = fence

    def checkpointed(self, epoch: int, tag: int, state: bytes) -> None:
        if epoch == self.epoch:
            self._states[tag] = state

    def _checkpoint(self) -> None:
        """Say how far it is with what it got last."""
        tag, value, _ = self.unacked[-1]
        self._steps += 1
        args = {"handle": self.handle, "epoch": self.epoch, "tag": tag, "state": b"%d:%d" % (value, self._steps)}
        self.machine.call("checkpoint", args, lambda result, code: None)

    def recall(self, epoch: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Deliveries are asked back: those that nobody has begun are given."""
        if epoch != self.epoch:
            return
        wanted = {tag for first, last in ranges for tag in range(first, last + 1)}
        given = sorted(tag for tag, _, _ in self.buffer if tag in wanted)
        self.buffer = deque(item for item in self.buffer if item[0] not in wanted)
        self._up("recalled", tag_ranges(given))
        if given and (ask := self.flow.consumed(len(given))):
            self._ask(ask)

    def _change_mode(self) -> None:
        """Now and then the rule of MQ and drain mode take turns, as other brokers come and go."""
        flow = self.flow
        if self.plan.flow != "credit" or flow.limit < 1 or self._min_tag == NEVER or self.world.rng.random() > 0.05:
            return
        if isinstance(flow, CreditFlow):
            self.flow = CreditPool(flow.limit, flow.to_come, flow.buffered)
            self._up("drain", 0)
        elif isinstance(flow, CreditPool) and not flow.to_come and flow.free():
            self.flow = CreditFlow(flow.limit, self.plan.percent)
            self.flow.to_come, self.flow.buffered = flow.free(), flow.buffered
            self._ask(self.flow.to_come)

    def _go_on(self) -> None:
        if not self._working:
            self._working = True
            rng, pace = self.world.rng, self.plan.pace
            if self.world.healing:
                pace = min(pace, MS)
            elif self.world.loop.now < self.slow_until:
                pace *= 20
            self.world.loop.after(int(pace * 2 * rng.random()) + 1, self._work)

    def _work(self) -> None:
        self._working = False
        if not self.epoch:
            return
        if self._silent:
            self._silent = False
            self._up("begun", 0)
        taken = 0
        buffer, flow = self.buffer, self.flow
        whole = not isinstance(flow, BatchFlow) or flow.here
        while whole and buffer and taken < self.plan.chunk:
            item = buffer.popleft()
            self._log("dequeue", item[1], item[2])
            self._seen = max(self._seen, item[0])
            self._got = item[0] if self.plan.outcomes or self.plan.begun else 0
            if self.plan.ack != "none":
                self.unacked.append(item)
            taken += 1
        if taken:
            ask = flow.consumed(taken)
            if ask:
                self._ask(ask)
            if self.plan.begun:
                self._up("begun", self._got)
        if self.plan.checkpoints and taken and self.unacked and not self.world.healing:
            self._checkpoint()
        if isinstance(flow, BatchFlow) and not buffer:
            flow.hand_over()
        if isinstance(flow, PrefetchFlow | BatchFlow) and self._min_tag != NEVER and (ask := flow.wanted()):
            self._ask(ask)
        if self.plan.changes:
            self._change_mode()
        self._acknowledge_some(taken)
        if buffer or self.unacked:
            self._go_on()

    def _log(self, f: str, value: int, attempt: int = 0) -> None:
        self.world.log(self.epoch, "ok", f, value, 1, attempt, where=self.world.watch.where.get(self.epoch, 0))

    def _up(self, method: str, *args: Any) -> None:
        connection = self.machine.connection
        if connection is not None:
            connection.up(getattr(connection.session, method), self.handle, self.epoch, *args)

    # ---- acknowledgements ------------------------------------------------------------------------------------------

    def _acknowledge_some(self, taken: int) -> None:
        unacked, ack, rng = self.unacked, self.plan.ack, self.world.rng
        if not unacked:
            return
        if self.plan.lease_ms and self.world.healing:  # A handle extends all it has, or a slow one never gets done.
            self._up("extend", tag_ranges(sorted(tag for tag, _, _ in (*unacked, *self.buffer))))
        elif self.plan.lease_ms and rng.random() < 0.3:
            self._up("extend", tag_ranges(sorted(tag for tag, _, _ in unacked)))
        if self.plan.outcomes and not self.world.healing and rng.random() < 0.15:
            self._settle_otherwise()
            return
        if self.world.healing or (ack != "lazy" and not taken and rng.random() < 0.5):
            self._acknowledge(unacked, confirm=True)
            self.unacked = []
        elif ack == "each":
            for item in unacked:
                self._acknowledge([item], confirm=True)
            self.unacked = []
        elif ack == "lazy":
            if len(unacked) >= 10 or not taken:
                self._acknowledge(unacked, confirm=False)
                self.unacked = []
        elif rng.random() < 0.4:
            kept: list[tuple[int, int, int]] = []
            if ack == "up_to":
                cut = 1 + int(rng.random() * len(unacked))
                chosen, kept = unacked[:cut], unacked[cut:]
            elif ack == "some":
                chosen = []
                for item in unacked:
                    (chosen if rng.random() < 0.5 else kept).append(item)
            else:
                chosen = unacked
            if chosen:
                self._acknowledge(chosen, confirm=True)
            self.unacked = kept

    def _acknowledge(self, items: list[tuple[int, int, int]], *, confirm: bool, epoch: int = 0) -> None:
        connection = self.machine.connection
        if connection is None:
            return
        request = 0
        epoch = epoch or self.epoch
        values = [value for _, value, _ in items]
        where = self.world.watch.where.get(epoch, 0)
        for value in values:
            self.world.log(epoch, "ok", "consume", value, 1, where=where)
        if confirm:
            request = self.machine.next_request()
            self.machine.asked[connection.number, request] = (*self.world.watch.queue_of[epoch], values)
        ranges = tag_ranges(sorted(tag for tag, _, _ in items))
        connection.up(connection.session.acknowledge, self.handle, epoch, request, ranges)

    def _settle_otherwise(self) -> None:
        """Some of it is rejected, given back, or has failed (B9)."""
        rng = self.world.rng
        count = 1 + int(rng.random() * len(self.unacked))
        chosen, self.unacked = self.unacked[:count], self.unacked[count:]
        outcome = rng.choice(("reject", "release", "release", "fail", "fail", "fail"))
        delay_ms = rng.choice((-1, 0, 25)) if outcome == "fail" else -1
        ranges = tag_ranges(sorted(tag for tag, _, _ in chosen))
        if outcome == "fail" and self.plan.causes:
            outcome = tuple(FAILS)[sum(value for _, value, _ in chosen) % len(FAILS)]
        self._up("settle_deliveries", rng.choice((0, self.machine.next_request())), outcome, delay_ms, "no", ranges)

    def _acknowledge_late(self) -> None:
        """An acknowledgement of the last life arrives in this one, as it may from a careless client."""
        if self._old is not None:
            epoch, items = self._old
            self._old = None
            if items and epoch != self.epoch and self.world.rng.random() < 0.3:
                self._acknowledge(items, confirm=True, epoch=epoch)


def tag_ranges(tags: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for tag in tags:
        if found and found[-1][1] == tag - 1:
            found[-1] = (found[-1][0], tag)
        else:
            found.append((tag, tag))
    return found
