"""Content of one block as a selector sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Content(Protocol):
    """Headers and properties of the messages of a block, by index; reading them changes nothing."""

    def properties(self, index: int) -> Mapping[str, Any]:
        """The application's properties: bool, int, float, str, bytes or None by name."""
        ...

    def column(self, name: str, rows: Sequence[int]) -> list[Any]:
        """One property of many messages: its value for each of ``rows``, None where there is none."""
        ...

    def header(self, index: int, name: str) -> Any:
        """A header by its JMS name, None when the message has none.

        Asked for are JMSMessageID (str), JMSTimestamp (int, ms since 1970), JMSPriority (int, 0 … 9), JMSDeliveryMode
        ("PERSISTENT" or "NON_PERSISTENT"), JMSCorrelationID (str), JMSType (str), JMS_BEA_UnitOfOrder (str), and names
        that begin with JMSX; for a name with JMSX that is None, the property of that name holds.
        """
        ...

    def may_have(self, trace: bytes) -> bool:
        """Whether these bytes may stand in the encoded headers of the messages; see :mod:`.traces`."""
        ...

    def dedup_ids(self) -> Sequence[str | None] | None:
        """The deduplication id of each message; None when no message has one."""
        ...
