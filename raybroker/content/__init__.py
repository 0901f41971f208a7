"""The inside of blocks: headers, bodies, and what the broker writes on messages that die.

Functions over bytes, without IO.  May import ``model``, ``wire`` and msgpack.  The entry is
:mod:`raybroker.content.headers`.
"""
