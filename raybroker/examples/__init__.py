"""Whole programs that the manual tells about; ``python -m raybroker.examples.NAME`` runs one.

They use public names alone, end by themselves, and say what they have found; tests run each of them.
"""
