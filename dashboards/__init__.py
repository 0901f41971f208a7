"""Boards for Grafana, rules for Prometheus, and a script that draws the boards without Grafana."""
