"""Standby processes: brokers and hosts that run, have nothing of their own, and become those of a lost broker."""
