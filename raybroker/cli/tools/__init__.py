"""Commands that need no broker that runs: start and stop one, its files, tables and keys; analysis, boards, bench and
demo.

It imports what each command starts. Enter at :mod:`raybroker.cli.tools.up`.
"""
