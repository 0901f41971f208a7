"""The append-only journal; see ``journal`` for the store and ``verify`` for checking one offline."""

from raybroker.store.fileio import FileIO
from raybroker.store.journal.journal import SEGMENT_BYTES, Journal
from raybroker.store.journal.verify import Damage, Report, verify

__all__ = ["SEGMENT_BYTES", "Damage", "FileIO", "Journal", "Report", "verify"]
