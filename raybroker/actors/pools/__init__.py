"""Instances of deployed listeners as actors, and pools that have a name.

It imports the client's listeners. Enter at :mod:`raybroker.actors.pools.pool`.
"""
