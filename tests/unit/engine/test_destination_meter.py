"""Meters of a destination and its clients: what they begin with."""

from __future__ import annotations

from raybroker.core.command import AttachConsumer
from raybroker.core.delivery.consumers import Consumer
from raybroker.engine.measuring.destination_meter import HISTOGRAMS, ConsumerMeter, DestinationMeter, ProducerMeter
from raybroker.engine.measuring.samplers import SAMPLE_FREE, Sampling
from raybroker.model.histogram import Histogram


def test_a_meter_has_each_histogram_that_is_scraped_and_nothing_in_it() -> None:
    meter = DestinationMeter(5, Sampling())
    histograms = {name for name in meter.__slots__ if isinstance(getattr(meter, name), Histogram)}
    assert histograms == set(HISTOGRAMS)
    assert [getattr(meter, name).count for name in HISTOGRAMS] == [0] * len(HISTOGRAMS)
    assert (meter.delivered_local, meter.delivered_remote, meter.largest_bytes, meter.busiest_units) == (0, 0, 0, None)
    assert meter.arrivals.at(0) == 5


def test_all_meters_of_a_host_share_what_may_be_observed_in_a_second() -> None:
    sampling = Sampling()
    destination = DestinationMeter(0, sampling)
    consumer = ConsumerMeter("b1", None, destination, 0, remote=False)
    for sample in (destination.sends, destination.keeps, destination.deliveries, consumer.acks):
        assert sample.weigh(1) == 1
    assert sampling.free == SAMPLE_FREE - 4


def test_a_client_is_metered_with_its_destination() -> None:
    destination = DestinationMeter(0, Sampling())
    who = Consumer(AttachConsumer(7, "credit", limit=1, no_ack=False, held=False))
    consumer = ConsumerMeter("b2", who, destination, 9, remote=True)
    assert (consumer.destination, consumer.consumer, consumer.home, consumer.remote) == (destination, who, "b2", True)
    assert (consumer.tags.at(1), consumer.acked_ns) == (9, 0)
    producer = ProducerMeter(destination)
    assert (producer.destination, list(producer.under_way)) == (destination, [])
