"""Copies of one log, with disks, clocks and a network that fail: one seed is one run, judged by checkers."""
