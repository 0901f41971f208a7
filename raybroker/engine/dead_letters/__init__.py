"""Dead letters: where messages go that died, and what is written down of them.

What lives here decides for each dead message between error destination, dead message queue and nowhere, and moves it
there. It imports the core and the path of commands. Enter at :mod:`raybroker.engine.dead_letters.dead_letters`.
"""
