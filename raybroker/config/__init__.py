"""Configuration as a value: built once at start from its layers, passed down, explained on request.

Imports only ``raybroker.model``.  The entry is ``Config``; ``layers`` is the only reader of the environment.
"""

from raybroker.config.config import Config, instance_of, store_directory

__all__ = ["Config", "instance_of", "store_directory"]
