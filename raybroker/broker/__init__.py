"""A broker as an object: its destinations, administration, metrics, and its place in the cluster.

Hosts and other brokers are reached through protocols, which actors implement in a Ray cluster and plain objects in the
loopback.  May import ``cluster``, ``content``, ``engine`` values, ``hosting``, ``metrics``, ``logs`` and ``config``.
The entry is :mod:`raybroker.broker.cluster_broker`.
"""
