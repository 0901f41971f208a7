"""Connection services of a broker: opened, administered, with their users, access rules and the audit log.

It imports the services and security. Enter at :mod:`raybroker.broker.services.opening_services`.
"""
