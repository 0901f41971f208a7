"""Queues as sources and sinks of Ray Data: ``rb.data.read_queue`` and ``rb.data.write_queue``."""

from raybroker.data.reading import read_queue
from raybroker.data.writing import write_queue

__all__ = ["read_queue", "write_queue"]
