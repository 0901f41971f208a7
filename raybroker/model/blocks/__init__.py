"""Blocks of messages, byte for byte, and the records that a store keeps of them.

It imports the model's errors and bounds. Enter at :mod:`raybroker.model.blocks.block`.
"""
