"""Messages of a sorted destination that wait in a delivery queue without units of order."""

from __future__ import annotations

from raybroker.core.delivery.consumers import Consumers
from raybroker.core.delivery.plain import Classify, PlainPending
from raybroker.core.delivery.run import Run
from raybroker.core.delivery.selector_index import SelectorIndex
from raybroker.core.delivery.sort_order import SortOrder
from raybroker.core.delivery.sorted_backlog import SortedBacklog
from raybroker.core.selector.content import Content
from raybroker.core.step import Step


class SortedPending(PlainPending):
    """A sorted backlog; the step goes on by itself as long as messages are without their keys."""

    __slots__ = ("_order",)

    backlog: SortedBacklog

    def __init__(self, consumers: Consumers, selector_index: SelectorIndex, order: SortOrder, step: Step) -> None:
        super().__init__(consumers, selector_index)
        self.backlog = SortedBacklog(order, step)
        self.by_keys = True
        self.needs_headers = order.needs_headers
        self._order = order

    def sorts_by_headers(self) -> bool:
        return self._order.needs_headers

    def append(self, run: Run, content: Content | None = None) -> None:
        super().append(run, content)
        self.unfinished = self.unfinished or self.backlog.unfinished

    def put_back(self, run: Run, classify: Classify | None = None) -> None:
        super().put_back(run, classify)
        self.unfinished = self.unfinished or self.backlog.unfinished
