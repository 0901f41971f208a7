"""Copies of brokers' logs at other brokers: where they are, and which of them leads when a broker is lost.

It imports :mod:`raybroker.model`. Enter at :mod:`raybroker.cluster.replicas.copy_takeover`.
"""
