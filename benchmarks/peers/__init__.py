"""One module a system under comparison; what they have in common is in :mod:`benchmarks.peers.base`."""
