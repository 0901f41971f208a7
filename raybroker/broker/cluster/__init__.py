"""A broker among the others of its cluster: the shell of the member machine, the record applied, and verbs over all
brokers.

What lives here carries messages between brokers and merges their answers; decisions are in :mod:`raybroker.cluster`.
Enter at :mod:`raybroker.broker.cluster.cluster_shell`.
"""
