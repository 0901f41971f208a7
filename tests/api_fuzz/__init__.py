"""Fuzzing of the public API with an oracle: sequences of calls by several threads over one real broker.

    python -m tests.api_fuzz --seconds 60 --store file
    python -m tests.api_fuzz --store sql --seed 17 --seeds 1

    plan.py     what a seed draws: attributes of the queues, threads, whether and when the process is killed
    player.py   the threads: each draws calls, makes them, and writes down what it asked for and what came of it
    worker.py   a process with a broker: the players of one round, or the drain that says what is left at the end
    oracle.py   the verdict on the notes of all rounds: no IO, no broker

Every message has a number. A confirmed one is received and acknowledged, or left at the end, exactly once; what was
acknowledged never comes again; whoever gets a message that somebody had before is told so; counts agree with what is
there; no call takes longer than its own time-out and SLACK_S; an exception is a BrokerError.
"""
