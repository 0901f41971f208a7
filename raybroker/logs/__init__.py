"""The log: which lines are written, where to, and what they look like (M-02 … M-06)."""
