"""The view that a broker gives of itself: metrics at a scrape, messages to the metrics topics, graded checks, memory
and thresholds.

It imports the metrics' catalogue and the ports of hosts, and changes nothing that is stored. Enter at
:mod:`raybroker.broker.observing.health`.
"""
