"""Consumers: prefetch, flow control, received messages and their acknowledgement.

The entry is :mod:`raybroker.client.consumer.consumer`.
"""
