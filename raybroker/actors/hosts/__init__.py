"""Hosts as actors, or in the broker's own process: started, watched, and asked by their broker.

It imports :mod:`raybroker.hosting`. Enter at :mod:`raybroker.actors.hosts.host`.
"""
