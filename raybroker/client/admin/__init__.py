"""Administration from Python: ``connection.admin()``.  The entry is :mod:`raybroker.client.admin.admin`."""
