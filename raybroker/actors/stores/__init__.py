"""Administration of stores and tables of brokers that do not run.

It imports the stores. Enter at :mod:`raybroker.actors.stores.salvage`.
"""
