"""Connection services: the servers that listen, for clients and for Prometheus.

May import ``engine``, ``transport``, ``wire`` and ``metrics``.  Entries are :mod:`raybroker.services.native.native` and
:mod:`raybroker.services.metrics.metrics_http`; HTTP is served by :mod:`raybroker.services.http.http_server`;
:mod:`raybroker.services.native.turn` says what of a connection's frames is put off to the end of a turn of the loop.
"""
