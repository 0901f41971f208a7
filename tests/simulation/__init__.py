"""The broker's core and engine in a world of one thread, where a seed decides everything that happens.

``python -m tests.simulation --seeds 100000 --start 0 --jobs 2`` runs seeds; ``--seeds 1 --start N`` runs one again.
``python -m tests.simulation.mutants`` switches one rule off at a time and shows how soon that is noticed.

    plan        what a seed draws: queues, clients, which faults are active and how often (swarm testing)
    events      the loop and the clock
    disk        a store and a committer that can lose what was not synced
    network     connections that delay, break, and break on one side first
    clients     producers and consumers, built on the client's own state machines
    twin        a dumb model of a queue that is compared after every step, and of what must be on disk
    history     what happened, as operations
    checkers    verdicts over histories
    world       all of it together: a phase with faults, then healing, draining and a last restart
"""
