"""Messages that wait in a delivery queue without units of order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar

from raybroker.core.batches.arrival_times import ArrivalTimes
from raybroker.core.batches.forming import BatchFormer
from raybroker.core.delivery.backlog import UNSORTED, Backlog
from raybroker.core.delivery.consumers import Consumer, Consumers, Delivery
from raybroker.core.delivery.pending import Dies, HandOut
from raybroker.core.delivery.run import Run
from raybroker.core.delivery.selector_index import SORT_MESSAGES_MAX, SelectorIndex
from raybroker.core.delivery.sorted_backlog import SortedBacklog
from raybroker.core.selector.content import Content

Classify = Callable[[Run], list[tuple[int, int]]]


class PlainPending:
    """A backlog and the selectors of its consumers. ``unfinished``: a step left work that the next has to go on with.

    ``former``: forms batches, where there are consumers of such.  ``times``: since when messages wait, where it is by
    that as well who gets them.
    ``by_keys``: the destination is sorted; ``needs_headers``: by what only the headers of messages say, or a consumer
    has a bound in cost, or batches by what headers say.

    Nothing depends on what is with a consumer, in a transaction or at rest, so most of ``Pending`` is empty here.
    """

    __slots__ = (
        "backlog",
        "by_keys",
        "consumers",
        "former",
        "needs_headers",
        "selector_index",
        "times",
        "unfinished",
        "weighing",
    )

    backlog: Backlog | SortedBacklog
    always_sorts: ClassVar[bool] = False
    """Whether messages are in several buckets also where no consumer has a selector."""

    def __init__(self, consumers: Consumers, selector_index: SelectorIndex) -> None:
        self.backlog = Backlog()
        self.consumers = consumers
        self.selector_index = selector_index
        self.former: BatchFormer | None = None
        self.times: ArrivalTimes | None = None
        self.unfinished = self.by_keys = self.needs_headers = False
        self.weighing = 0
        """Consumers for whom the headers of messages are read."""

    @property
    def count(self) -> int:
        return self.backlog.count

    # ---- coming in -------------------------------------------------------------------------------------------------

    def weigh(self, change: int) -> None:
        """A consumer with a bound in cost, or of batches by what headers say, comes or goes."""
        self.weighing += change
        self.needs_headers = self.weighing > 0 or self.sorts_by_headers()

    def sorts_by_headers(self) -> bool:
        """Whether the order is by what only the headers say."""
        return False

    def labels_join(self, attachment: int, labels: Iterable[str]) -> bool:
        """A consumer with these labels comes: whether messages have to be looked at again."""
        return False

    def labels_leave(self, attachment: int) -> None: ...

    def append(self, run: Run, content: Content | None = None) -> None:
        if self.unfinished and self.backlog.has_unsorted(run.priority):
            self.backlog.append(run, UNSORTED)
        elif not self.selector_index.selectors and not self.always_sorts:
            self.backlog.append(run)
        else:
            for signature, mask in self.selector_index.classify(run, content):
                self.backlog.append(run._replace(mask=mask), signature)

    def put_back(self, run: Run, classify: Classify | None = None) -> None:
        if not self.selector_index.selectors and not self.always_sorts:
            self.backlog.give_back(run)
        elif self.unfinished and self.backlog.has_unsorted(run.priority):
            self.backlog.give_back(run, UNSORTED)
        else:
            for signature, mask in (classify or self.selector_index.classify)(run):
                self.backlog.give_back(run._replace(mask=mask), signature)

    # ---- going out -------------------------------------------------------------------------------------------------

    def dispatch(self, hand_out: HandOut, dies: Dies) -> None:
        backlog, consumers = self.backlog, self.consumers
        without: list[Consumer] = []
        while backlog.count:
            turn = consumers.next_with_room()
            if turn is None:
                break
            consumer, room = turn
            run = backlog.take_run(room, consumer.selector)
            if run is None:
                # Nothing that is left is for its selector: it is not asked again in this step.
                without.append(consumers.turn.popleft())
            else:
                hand_out(consumer, run)
        else:
            # All is handed out, and this consumer has room still: what comes next is for the next one.
            consumers.turn.rotate(-1)
        consumers.turn.extend(without)

    def has_for(self, consumer: Consumer) -> bool:
        return self.backlog.has_for(consumer.selector)

    def returned(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        return []

    def overtaken(self, runs: Iterable[Run]) -> list[Delivery]:
        return []

    # ---- transactions ----------------------------------------------------------------------------------------------

    def staged_elsewhere(self, deliveries: Iterable[Delivery], txn: int) -> str | None:
        return None

    # ---- nothing to do without units of order ----------------------------------------------------------------------

    def hold_place(self, run: Run) -> None: ...
    def drop_blocked(self, ordinal: int, mask: int) -> None: ...
    def reserve(self, run: Run) -> None: ...
    def unreserve(self, ordinal: int, mask: int) -> None: ...
    def settled(self, runs: Iterable[Run]) -> None: ...
    def consumer_left(self) -> None: ...
    def stage(self, deliveries: Iterable[Delivery], txn: int, sign: int = 1) -> None: ...
    def restage(self, run: Run, txn: int) -> None: ...

    # ---- taking out ------------------------------------------------------------------------------------------------

    def clear(self) -> list[Run]:
        return self.backlog.clear()

    def remove(self, chosen: Mapping[int, int]) -> list[Run]:
        return self.backlog.remove(chosen)

    def next_to_remove(self, *, lowest_priority: bool) -> Run | None:
        return self.backlog.next_to_remove(lowest_priority=lowest_priority)

    def take_to_remove(self, room: int, *, lowest_priority: bool) -> list[Run]:
        run = self.backlog.take_to_remove(room, lowest_priority=lowest_priority)
        return [] if run is None else [run]

    def runs(self) -> Iterator[Run]:
        return self.backlog.runs()

    def tried(self) -> Iterator[Run]:
        return self.backlog.tried()

    # ---- selectors -------------------------------------------------------------------------------------------------

    def selectors_changed(self) -> None:
        if self.backlog.count:
            self.backlog.unsort()

    def sort_some(self, classify: Classify | None = None) -> bool:
        return self.backlog.sort_some(SORT_MESSAGES_MAX, classify or self.selector_index.classify)
