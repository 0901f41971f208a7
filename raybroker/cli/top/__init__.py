"""The live table of ``raybroker top``: what was told, what is to be seen, how it looks, and the terminal.

``figures`` has what brokers told, with its age and the rates between two looks; ``screen`` makes of each key the next
state of the screen; ``drawing`` makes lines of both. Those are pure. ``asking`` asks in a thread of its own, and
``terminal`` has the keys, the signals and the alternate screen. They import the command line's output and the audit;
enter at :mod:`raybroker.cli.objects.top`.
"""
