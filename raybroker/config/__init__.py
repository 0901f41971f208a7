"""Configuration as a value: built once at start from its layers, passed down, explained on request."""

from raybroker.config.config import Config, store_directory

__all__ = ["Config", "store_directory"]
