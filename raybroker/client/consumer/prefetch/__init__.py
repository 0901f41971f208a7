"""Prefetch: the blocks that came ahead, the credit for more of them, and what is recognised as having come before.

Pure: no socket and no thread. It imports blocks of the model. Enter at
:mod:`raybroker.client.consumer.prefetch.prefetch_buffer`.
"""
