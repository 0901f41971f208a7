"""Figures and lines of a host: meters, rows of metrics, and what the log says about limits, thresholds and disks.

What lives here looks and counts; nothing of it changes what happens to a message. It imports the core. Enter at
:mod:`raybroker.engine.measuring.metrics`.
"""
