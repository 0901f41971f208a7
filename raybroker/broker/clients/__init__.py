"""Clients of a broker as administrators see them: listed, and ended.

It imports the ports of hosts and services. Enter at :mod:`raybroker.broker.clients.connection_verbs`.
"""
