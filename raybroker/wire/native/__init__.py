"""The native protocol as a state machine without IO: frames, and one connection.

May import ``model``.  The entry is :mod:`raybroker.wire.native.connection`.
"""
