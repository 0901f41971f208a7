"""``raybroker demo``: real data through a queue, a consumer killed on the way, and a check against the file itself.

It uses the public names of raybroker as any program would, and may be read as an example of them.
"""
