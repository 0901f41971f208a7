"""The ladder: tidy, unit, scenarios, contracts, simulation, and a few real clusters."""
