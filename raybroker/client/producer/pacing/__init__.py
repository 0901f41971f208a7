"""The pace of a producer: what is taken at once, what waits and for how long, and what is refused or lost.

It imports the state of a producer. Enter at :mod:`raybroker.client.producer.pacing.send_room`.
"""
