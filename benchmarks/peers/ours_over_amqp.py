"""raybroker's service ``amqp``, for a client that is given its port: see :mod:`benchmarks.amqp_ratios`."""

from __future__ import annotations

from typing import Any

from benchmarks.ours_connection import connect
from benchmarks.peers.base import Address
from benchmarks.peers.ours_over_service import OursOverService


def _create(job: Any, address: Address, queue: str, attributes: dict[str, Any]) -> None:
    with connect(address) as connection:
        connection.admin().create_destination("queue", queue, **attributes)
    job.ready()


class OursOverAmqp(OursOverService):
    service = "amqp"

    def create_queue(self, address: Address, queue: str, **attributes: Any) -> None:
        """``attributes``: beside where it is."""
        self.run(_create, address, queue, {"hosting": self.hosting, **attributes})
