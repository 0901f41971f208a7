"""Tests of the analysis: the exposition reader, the lake, jobs on lakes with known answers, a real Prometheus."""
