"""The log: which lines are written, where to, and what they look like."""
