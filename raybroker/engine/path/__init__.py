"""The path of a command through a host: step the destination, append what it recorded, release what that allows.

What lives here runs for every command, or for every block: taking blocks in, making them durable in groups, and
carrying out the effects. It imports the core, the ports of the engine, and no other room but measuring. Enter at
:mod:`raybroker.engine.path.executor`.
"""
