"""The vocabulary: values that every other layer may speak of, and nothing that acts.

This package imports the standard library only.
"""
