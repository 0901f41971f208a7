"""Carries out what the core decides: step → append (group commit) → release."""
