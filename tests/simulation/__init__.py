"""The broker's core and engine in a world of one thread, where a seed decides everything that happens.

``python -m tests.simulation --seeds 100000 --start 0 --jobs 2`` runs seeds; ``--seeds 1 --start N`` runs one again.
``python -m tests.simulation.mutants`` switches one rule off at a time and shows how soon that is noticed.

    plan         what a seed draws: destinations, clients, which features and faults and how often (swarm testing)
    events       the loop and the clock
    disk         a store and a committer that can lose what was not synced
    network      connections that delay, break, and break on one side first
    messages     bodies, properties, priorities and selectors, which all follow from a message's number
    clients      machines and producers, built on the client's own state machines; consumers, transactors beside them
    faults       what goes wrong, and what administrators do meanwhile
    twin         a dumb model of a queue or topic that is compared after every step (twin_*: its state and commands)
    credit pool        the books of a consumer in drain mode
    ondisk       a dumb model of what must be on disk, compared with what a restart finds
    watch        holds steps, effects and restarts against the two
    history      what happened, as operations
    checkers     verdicts over histories, of all queues together and of each subscription
    world        all of it together: a phase with faults, then healing, draining and a last restart
    mutation     mutants: one rule of the broker switched off (mutant_*), and how soon that is noticed
"""
