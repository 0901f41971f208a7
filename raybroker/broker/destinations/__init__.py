"""Destinations of a broker over its hosts: which there are, where each lives, and the verbs about them and their
messages.

What lives here asks hosts by their ports and merges what they say. It imports the hosting port, the core's values and
the table of verbs. Enter at :mod:`raybroker.broker.destinations.destinations`.
"""
