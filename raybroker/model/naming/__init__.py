"""Names: of destinations, brokers, clients, properties, units of order and branches, and patterns of them.

It imports the model's errors. Enter at :mod:`raybroker.model.naming.names`.
"""
