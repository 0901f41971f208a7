"""The native connection service: our protocol between clients' links and sessions of the engine.

It imports the engine's sessions, wire and transport. Enter at :mod:`raybroker.services.native.native`.
"""
