"""Sockets: bytes between a protocol machine and a connection, datagrams, listening ports, and the event loop.

Imports only ``raybroker.wire``, ``raybroker.model`` and uvloop.  The entry is ``link.Link``.
"""
