"""A batch as it stands in a file of an open journal, for whoever sends it on or cuts the log between two."""

from __future__ import annotations

from dataclasses import dataclass

from raybroker.store.journal.format import JournalRow
from raybroker.store.journal.image import LogEnd


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """``rows``: its entries; ``first_seq``: number of the first; ``end``: where the log goes on behind it; its payloads
    are ``payload_bytes`` at ``payload_at`` in the file ``slot``."""

    rows: list[JournalRow]
    first_seq: int
    end: LogEnd
    slot: int
    payload_at: int
    payload_bytes: int
