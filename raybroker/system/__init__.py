"""The operating system: clock, randomness, allocator, priority, failpoints.  Imports only ``raybroker.model``."""
