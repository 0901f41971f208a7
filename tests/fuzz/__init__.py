"""Hostile input: what the decoders do with bytes that nobody who means well would send."""
