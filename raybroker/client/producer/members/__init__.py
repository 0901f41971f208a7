"""Producers of several places: members of a distributed destination, topics of a pattern, and a destination for each
send.

It imports the producer. Enter at :mod:`raybroker.client.producer.members.unit_routing`.
"""
