"""The destinations of a host: the table of them, how they are made and removed, their limits and what administrators
ask.

What lives here changes which destinations there are, what holds for them, or where their messages are. It imports the
core, the path of commands, and the ports of the engine. Enter at
:mod:`raybroker.engine.destinations.destination_registry`.
"""
