"""Meters of one destination, one producer and one consumer: counts and times as plain numbers."""

from __future__ import annotations

from collections import deque
from typing import Final

from raybroker.core.delivery.consumers import Consumer
from raybroker.engine.measuring.samplers import Average, Busiest, Sampling, SizeSample, Times
from raybroker.model import histogram as h
from raybroker.model.histogram import Histogram


class DestinationMeter:
    """The meter of one destination that was used: see the catalogue of metrics for what the histograms count."""

    __slots__ = (
        "arrivals",
        "averages",
        "busiest_units",
        "consumers_peak",
        "consumers_total",
        "delivered_local",
        "delivered_remote",
        "deliveries",
        "delivery_batch_messages",
        "delivery_to_ack_seconds",
        "keeps",
        "largest_bytes",
        "prefetch_occupancy_ratio",
        "send_batch_messages",
        "send_to_store_seconds",
        "sends",
        "service_seconds",
        "store_to_delivery_seconds",
    )

    def __init__(self, now_ns: int, sampling: Sampling) -> None:
        self.arrivals = Times(now_ns)
        self.sends, self.keeps, self.deliveries = SizeSample(sampling), SizeSample(sampling), SizeSample(sampling)
        self.send_to_store_seconds = Histogram(h.SECONDS)
        self.store_to_delivery_seconds = Histogram(h.SECONDS)
        self.delivery_to_ack_seconds = Histogram(h.SECONDS)
        self.service_seconds = Histogram(h.SERVICE_SECONDS)
        self.send_batch_messages = Histogram(h.BATCH)
        self.delivery_batch_messages = Histogram(h.BATCH)
        self.prefetch_occupancy_ratio = Histogram(h.RATIO)
        self.delivered_local = self.delivered_remote = self.largest_bytes = 0
        self.consumers_total = self.consumers_peak = 0
        self.averages: dict[str, Average] = {}
        self.busiest_units: Busiest | None = None


HISTOGRAMS: Final = (
    "send_to_store_seconds",
    "store_to_delivery_seconds",
    "delivery_to_ack_seconds",
    "service_seconds",
    "send_batch_messages",
    "delivery_batch_messages",
    "prefetch_occupancy_ratio",
)
"""Those of a DestinationMeter, by their keys in the catalogue."""


class ProducerMeter:
    """Observed blocks of one producer on their way to the disk: first sequence number, arrival and weight."""

    __slots__ = ("destination", "under_way")

    def __init__(self, destination: DestinationMeter) -> None:
        self.under_way: deque[tuple[int, int, int]] = deque()
        self.destination = destination


class ConsumerMeter:
    """``tags``: when deliveries left; ``home``: the consumer's home broker, "" when it did not say."""

    __slots__ = ("acked_ns", "acks", "consumer", "destination", "home", "remote", "tags")

    def __init__(
        self, home: str, consumer: Consumer | None, destination: DestinationMeter, now_ns: int, *, remote: bool
    ) -> None:
        self.acks = SizeSample(destination.deliveries.sampling)
        self.home = home
        self.consumer = consumer
        self.destination = destination
        self.remote = remote
        self.tags = Times(now_ns)
        self.acked_ns = 0
