"""Connection services: what listens for clients and turns their protocol into calls of the engine."""
