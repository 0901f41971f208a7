"""The endpoint that Prometheus scrapes, and who may.

It imports the metrics' exposition and the server of HTTP. Enter at :mod:`raybroker.services.metrics.metrics_http`.
"""
