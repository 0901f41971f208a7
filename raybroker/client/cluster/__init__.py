"""The cluster as a client sees it: addresses, brokers and their states, where destinations are, and which member is
next.

What lives here asks brokers and remembers what they said. It imports the ways, the loops and the table of verbs.
Enter at :mod:`raybroker.client.cluster.directory`.
"""
