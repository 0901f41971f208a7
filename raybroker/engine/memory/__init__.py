"""The bytes of held messages: in memory while there is room, in paging files, or in the store.

What lives here keeps, pages, reads and compresses bodies, and sets damaged ones aside; it decides nothing about
messages. It imports the core's memory levels and the ports of the engine. Enter at
:mod:`raybroker.engine.memory.block_cache`.
"""
