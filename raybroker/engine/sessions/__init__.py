"""Connections of clients to a host: their producers and consumers, and what they ask of them.

What lives here turns one request of one connection into calls of the other rooms. It imports the core and the
engine's other rooms, never a socket: frames are read in services. Enter at :mod:`raybroker.engine.sessions.session`.
"""
