"""Protocols as state machines without IO: bytes in, events out; calls in, bytes out.  A package for each protocol."""
