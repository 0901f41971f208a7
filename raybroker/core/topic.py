"""A topic: every message goes to each subscription that wants it, and is kept once for all of them (D-02, B-08, D-27).

A plain subscriber's lane lives as long as its consumer; a shared one's as long as any consumer; a durable one's until
it is unsubscribed.  Only durable lanes are written down, and a message that no durable lane wants is not stored at all:
a restart ends its only takers.
"""

from __future__ import annotations

from raybroker.core import command as cmd
from raybroker.core import notes, transaction
from raybroker.core.destination import Destination
from raybroker.core.lane import Lane
from raybroker.core.outcome import Outcome
from raybroker.core.selector import compile_selector
from raybroker.core.selector.content import Content
from raybroker.core.subscription import Subscription, shared_otherwise
from raybroker.core.work import PARTS
from raybroker.model.errors import IllegalStateError, InvalidDestinationError
from raybroker.model.settings import DestinationAttributes


class Topic(Destination):
    """``next_lane``: lanes are numbered from 1 and numbers are never used again."""

    kind = "topic"

    def __init__(
        self, number: int, name: str, attributes: DestinationAttributes, *, reap_ms: int | None = None
    ) -> None:
        super().__init__(number, name, attributes, reap_ms=reap_ms)
        self.next_lane = 1

    # ---- subscriptions ---------------------------------------------------------------------------------------------

    def lane_for(self, command: cmd.AttachConsumer, out: Outcome) -> Lane:
        wanted = command.subscription
        if wanted is None:
            raise InvalidDestinationError(f"{self.name} is a topic: its consumers are subscribers")
        lane = self._found_or_ended(wanted, out)
        if lane is not None and lane.consumers.by_attachment and not wanted.shared:
            raise IllegalStateError(f"subscription {wanted.name!r} has a consumer already; close that one first")
        return lane or self.subscribe(wanted, out)

    def _subscribe(self, command: cmd.Subscribe, out: Outcome) -> None:
        if self._found_or_ended(command.subscription, out) is None:
            self.subscribe(command.subscription, out)

    def _found_or_ended(self, wanted: Subscription, out: Outcome) -> Lane | None:
        """The lane of a subscription; one of that name with other options is ended (D-27)."""
        if wanted.selector is not None:
            compile_selector(wanted.selector)
        lane = self.find(wanted.client_id, wanted.name, durable=wanted.durable) if wanted.name else None
        if lane is not None and lane.subscription != wanted:
            self._replace(lane, wanted, out)
            return None
        return lane

    def find(self, client_id: str, name: str, *, durable: bool = True) -> Lane | None:
        """The lane of a named subscription; a durable one and a shared one that is not durable have nothing in
        common, whatever they are called (JMS 2.0, 8.3.3)."""
        for lane in self.lanes.values():
            own = lane.subscription
            if own is not None and (own.client_id, own.name, own.durable) == (client_id, name, durable):
                return lane
        return None

    def _replace(self, lane: Lane, wanted: Subscription, out: Outcome) -> None:
        """The same name with another selector: destroyed and made anew, unless somebody uses it (D-27).

        A shared one never takes the place of an unshared one, nor the other way round.
        """
        assert lane.subscription is not None
        if lane.subscription.shared != wanted.shared:
            raise shared_otherwise(wanted.name, shared=lane.subscription.shared)
        if lane.consumers.by_attachment:
            raise IllegalStateError(
                f"subscription {wanted.name!r} is in use with other options (selector, noLocal, durable or shared);"
                " close its consumers first"
            )
        self._end(lane, out)

    def subscribe(self, wanted: Subscription, out: Outcome) -> Lane:
        """A new lane; it gets what is published from now on."""
        lane = self.lanes[self.next_lane] = Lane(self.next_lane, self, wanted)
        self.next_lane += 1
        self._reserve(lane)
        if lane.durable:
            out.records.append(self.note(notes.encode(notes.LANE, lane.number, (), (), wanted.encode())))
        return lane

    def _reserve(self, lane: Lane) -> None:
        """What open transactions have sent already comes before what is sent from now on (W-86)."""
        waiting = (block for staged in self.staged.values() for block in staged.blocks)
        for block in sorted((b for b in waiting if self.ledger.held[b.ordinal].ordered), key=lambda b: b.ordinal):
            content = self.peek(block.ordinal) if block.content is None else block.content
            picks = self.claims(block.picks, content, block.origin).get(lane.number, 0)
            if picks:
                lane.reserve(block.ordinal, picks)

    def parts_lane(self, out: Outcome) -> int:
        return (self.find(PARTS.client_id, PARTS.name) or self.subscribe(PARTS, out)).number

    def left_by(self, lane: Lane, out: Outcome) -> None:
        if not lane.durable and not lane.consumers.by_attachment:
            self._end(lane, out)

    def _unsubscribe(self, command: cmd.Unsubscribe, out: Outcome) -> None:
        lane = self.find(command.client_id, command.name)
        if lane is None:
            raise InvalidDestinationError(f"topic {self.name} has no subscription {command.name!r} of that client")
        if lane.consumers.by_attachment:
            raise IllegalStateError(f"subscription {command.name!r} has a consumer; close it before unsubscribing")
        if any(number == lane.number for staged in self.staged.values() for number, _ in staged.acks):
            raise IllegalStateError(f"subscription {command.name!r} is part of an open transaction; end that first")
        self._end(lane, out)

    def _end(self, lane: Lane, out: Outcome) -> None:
        """The lane goes, with everything it is owed."""
        assert lane.owes is not None
        transaction.forget_lane(self, lane)
        for ordinal, picks in lane.dying.items():
            self.dying -= picks.bit_count()
            self.dying_bytes -= self.ledger.held[ordinal].bytes_of(picks)
        if lane.durable:
            out.records.append(self.note(notes.encode(notes.LANE_GONE, lane.number)))
        retired: tuple[list[int], list[int]] = ([], [])
        for ordinal, picks in list(lane.owes.items()):
            block = self.ledger.held[ordinal]
            free, _ = self.clear_lane(lane, ordinal, picks)
            if free and self.ledger.settle(ordinal, free):
                retired[block.stored].append(ordinal)
        self.retire(retired, out)
        del self.lanes[lane.number]
        self._touched.pop(lane.number, None)

    def has_durable_lanes(self) -> bool:
        return any(lane.durable for lane in self.lanes.values())

    # ---- messages --------------------------------------------------------------------------------------------------

    def claims(self, picks: int, content: Content | None, origin: tuple[str, str]) -> dict[int, int]:
        """Equal selectors are evaluated once."""
        found: dict[int, int] = {}
        matches: dict[str, int] = {}
        for number, lane in self.lanes.items():
            own = lane.subscription
            assert own is not None
            if own == PARTS or (own.no_local and own.origin and own.origin in origin):
                continue
            chosen = picks
            if own.selector is not None and content is not None:
                if own.selector not in matches:
                    matches[own.selector] = compile_selector(own.selector).pick(content, picks, 0)
                chosen = matches[own.selector]
            if chosen:
                found[number] = chosen
        return found

    def clear_lane(self, lane: Lane, ordinal: int, picks: int) -> tuple[int, bool]:
        """What is free is what no other lane owes; all of it at once when this lane is the last."""
        assert lane.owes is not None
        block = self.ledger.held[ordinal]
        left = lane.owes[ordinal] & ~picks
        if left:
            lane.owes[ordinal] = left
        else:
            del lane.owes[ordinal]
            block.claims -= 1
        if not block.claims:
            return block.everything & ~block.done, True
        if block.count == 1:
            return 0, True
        free = picks
        if block.claims > bool(left):
            for other in self.lanes.values():
                if other is not lane and other.owes is not None:
                    free &= ~other.owes.get(ordinal, 0)
                    if not free:
                        break
        return free, not left
