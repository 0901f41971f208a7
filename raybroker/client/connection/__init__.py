"""A client's connection to a cluster: addresses, channels to hosts, the directory of destinations, and reconnection.

The entry is :mod:`raybroker.client.connection.connection`.
"""
