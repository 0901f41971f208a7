"""What one seed is like: how many brokers, how bad the network is, and how often what goes wrong."""

from __future__ import annotations

from random import Random

MS = 1000
S = 1000 * MS
"""Times are whole microseconds."""


class Plan:
    """Everything that is decided before a run; times in microseconds, rates are mean times between two faults."""

    def __init__(self, rng: Random, *, share: bool, odd: bool) -> None:
        """``share``: brokers share a table, whatever is drawn; ``odd``: they do where there is no master."""
        self.names = tuple(f"b{number}" for number in range(1, 1 + rng.choice((3, 3, 3, 4, 5))))
        self.late = frozenset(rng.sample(self.names[1:], 1)) if rng.random() < 0.4 else frozenset()
        """Brokers that join in the middle."""
        self.with_master = rng.random() < 0.8 and not share
        self.with_table = share or (odd and not self.with_master)
        self.cluster = rng.choice(("", "c1"))
        self.length_us = rng.randrange(10, 40) * S
        self.skew_ms = {name: rng.randrange(-2000, 2000) for name in self.names}
        calm_network = rng.random() < 0.3
        self.lost = 0.0 if calm_network else rng.choice((0.01, 0.05, 0.2))
        self.repeated = 0.0 if calm_network else rng.choice((0.0, 0.05, 0.3))
        self.late_share = 0.0 if calm_network else rng.choice((0.0, 0.02, 0.1))
        self.delay_us = rng.choice((2 * MS, 20 * MS, 100 * MS))
        self.late_us = rng.choice((500 * MS, 5 * S))
        self.sync_us = rng.choice((1 * MS, 30 * MS, 200 * MS))
        self.lag_us = rng.choice((1 * MS, 50 * MS))
        self.apply_us = rng.choice((5 * MS, 100 * MS, 400 * MS))
        self.apply_fails = rng.choice((0.0, 0.0, 0.05))
        self.exchange_lost = rng.choice((0.0, 0.0, 0.1))
        self.change_us = rng.choice((50 * MS, 200 * MS, 800 * MS))
        often = rng.choice((0.5, 1, 2))
        rates = {
            "crash": 8,
            "crash all": 60,
            "partition": 12,
            "one way": 20,
            "isolate": 20,
            "disk error": 30,
            "change master": 5,
            "second instance": 20,
            "backup": 10,
            "restore": 45,
            "leave": 30,
            "disk lost": 40,
            "compress": 5,
            "table down": 12,
            "table restored": 30,
        }
        self.rates = {name: round(seconds * S / often) for name, seconds in rates.items()}
        if not self.with_master:
            for name in ("backup", "restore", "change master"):
                self.rates[name] = 0
        if not self.with_table:
            for name in ("table down", "table restored"):
                self.rates[name] = 0
        self.down_us = rng.choice((300 * MS, 2 * S, 6 * S))
        """Longest time until a broker that died is started again."""
        self.table_us = rng.choice((5 * MS, 100 * MS)) if self.with_table else 0
        self.table_unseen = rng.choice((0.0, 0.05, 0.2)) if self.with_table else 0.0
        """Share of calls to the table whose end is not seen."""
        self.host_away = rng.choice((0.0, 0.02, 0.1))
        """How often a host turns out not to start when changes are carried out."""
        self.host_away_us = rng.choice((300 * MS, 2 * S, 5 * S))
        """Longest time until it is there."""

    @property
    def with_record(self) -> bool:
        """There is one record, and brokers have copies of it."""
        return self.with_master or self.with_table
