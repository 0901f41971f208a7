"""Producers: what an application sends, until the broker has confirmed it.

The entry is :mod:`raybroker.client.producer.producer`.
"""
