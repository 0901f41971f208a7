"""Metrics: the catalogue of quantities, counters over hosts, the page for Prometheus, and metrics messages.

Imports only ``raybroker.model`` and prometheus_client.  Begin with ``catalogue``, which has every quantity once.
"""
