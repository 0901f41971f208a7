"""STOMP 1.0, 1.1 and 1.2 without IO: bytes to frames (``parser``), frames to bytes (``frame``).

Imports ``model`` alone.  Entries are :class:`raybroker.wire.stomp.parser.Parser` and
:func:`raybroker.wire.stomp.frame.encode`.
"""
