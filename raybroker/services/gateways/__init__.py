"""Gateways: servers of other protocols, each of whose clients is a client of its own broker, and the bounds they
share.

It imports the client's handles. Enter at :mod:`raybroker.services.gateways.gateway`.
"""
