"""Bodies of messages on their way out: encoded, validated, compressed, cut into blocks, or sent in pieces.

It imports content and wire, and no loop. Enter at :mod:`raybroker.client.producer.bodies.body_encoding`.
"""
