"""One rule of the broker switched off at a time: all mutants, in the order of their files.

A mutant says which rule it breaks. ``equivalent`` would say why no history can tell it from the original; none is now.
"""

from __future__ import annotations

from tests.simulation import (
    mutant_batches,
    mutant_dispatch,
    mutant_draining,
    mutant_durability,
    mutant_features,
    mutant_large,
    mutant_recalling,
    mutant_rules,
    mutant_staleness,
    mutant_units,
)
from tests.simulation.mutation import TABLE, Mutant, Patch, applied

__all__ = [
    "TABLE",
    "Mutant",
    "Patch",
    "applied",
    "mutant_batches",
    "mutant_dispatch",
    "mutant_draining",
    "mutant_durability",
    "mutant_features",
    "mutant_large",
    "mutant_recalling",
    "mutant_rules",
    "mutant_staleness",
    "mutant_units",
]
