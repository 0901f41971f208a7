"""Completion in shells: what may come next on a command line, with names of what there is at the broker.

``script`` prints what a shell loads; that calls ``complete``, which reads the line (``line``), finds what fits
(``words``), asks the broker where names are wanted (``live``), and writes it so that the shell reads it as it is meant.
"""
