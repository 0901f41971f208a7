"""Blocks as a destination sees them: which messages of a block are meant, and what is left of each block.

May import ``model`` and ``core`` values.  The entry is :class:`~raybroker.core.blocks.block_index.BlockIndex`.
"""
