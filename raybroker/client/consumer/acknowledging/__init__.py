"""Acknowledgements of a consumer: what was handed out, what was settled, and what the broker said to that.

Pure but for the clock it is given; it imports the consumer's prefetch buffer. Enter at
:mod:`raybroker.client.consumer.acknowledging.acknowledgement_window`.
"""
