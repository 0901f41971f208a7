"""``raybroker verify``: load on a running cluster, faults that its user allows, and a verdict on what came of it.

``notes`` has what clients write down and ``ledger`` judges it, both without IO; ``clients`` are the actors that send
and receive, ``recorder`` the one that they tell, ``faults`` what may be done to the cluster, and ``run`` the course.
It uses the public names of raybroker as any program would; process ids and nodes are asked of the brokers' actors.
"""
