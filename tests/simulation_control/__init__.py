"""Brokers of a cluster in one process, on virtual time: the production machines of ``raybroker.control`` and the
production record file, over a disk that loses what was not synced and a network that loses, repeats and delays.

``world`` runs a seed, ``faults`` is what goes wrong, ``checkers`` is what has to hold, ``mutants`` shows that they
would notice.
"""
