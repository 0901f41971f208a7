"""The lake with known answers: four brokers, five days, and everything that jobs have to find."""

from __future__ import annotations

from typing import Final

from raybroker.analysis import names
from tests.analysis.generate import DAY_S, Faults, Plan, Plant
from tests.analysis.samples import START_MS

HOUR_S: Final = 3600.0
INTERVAL_S: Final = 1200.0
DAYS: Final = 5
MEMORY: Final = 8e9
SECONDS: Final = DAYS * DAY_S

PLANTS: Final = (
    # orders carries most of the traffic, b3 takes most of it
    Plant(names.IN, "orders", factor=20.0),
    Plant(names.BYTES_IN, "orders", factor=20.0),
    Plant(names.IN, broker="b3", factor=4.0),
    Plant(names.UNITS, "payments", labels={"unit": "u1"}, factor=16.0),
    # a backlog that grows towards its quota, one that drains
    Plant(names.HELD, "orders", "b2", grows=1.0, start_s=4 * DAY_S),
    Plant(names.HELD, "payments", "b4", value=50_000.0, grows=-0.25, start_s=4 * DAY_S),
    Plant(names.QUOTA_USED, "orders", "b2", value=0.1, grows=0.15 / DAY_S),
    # consumers at b1 idle while messages wait at b2, for two days
    Plant(names.IDLE, "payments", "b1", value=2.0, end_s=2 * DAY_S),
    Plant(names.WAITING, "payments", "b1", value=0.0),
    Plant(names.IDLE, "payments", "b2", value=0.0),
    Plant(names.WAITING, "payments", "b2", value=50.0, end_s=2 * DAY_S),
    # from broker to broker
    Plant(names.ROUTED, broker="b1", labels={"consumer_broker": "b3"}, factor=40.0),
    # producers held back for half an hour, memory short for two hours
    Plant(names.FLOW_SECONDS, "orders", "b1", extra=1800.0, start_s=1.5 * DAY_S, end_s=1.5 * DAY_S + HOUR_S),
    Plant(names.MEMORY_LIMIT, value=MEMORY),
    Plant(names.RESIDENT, value=0.1 * MEMORY),
    Plant(
        names.RESIDENT,
        broker="b4",
        labels={"process": "host"},
        value=0.85 * MEMORY,
        start_s=3 * DAY_S,
        end_s=3 * DAY_S + 2 * HOUR_S,
    ),
    # each morning at nine many are redelivered, which is usual; once, many die
    *(
        Plant(
            names.REDELIVERED,
            "orders",
            "b1",
            extra=1000.0,
            start_s=day * DAY_S + 9 * HOUR_S,
            end_s=day * DAY_S + 10 * HOUR_S,
        )
        for day in range(DAYS)
    ),
    Plant(names.DEAD, "payments", "b1", extra=5000.0, start_s=2 * DAY_S + 10 * HOUR_S, end_s=2 * DAY_S + 11 * HOUR_S),
    Plant(names.PATH_UNITS, broker="b1", labels={"member": "b2"}, value=500.0),
    # orders has copies: b1 leads it, b3 for a day, b1 again; the copy at b2 is behind, and for a while none leads
    Plant(names.LEADER_TERM, "orders", "b1", value=1.0, end_s=2 * DAY_S),
    Plant(names.LEADER_TERM, "orders", "b3", value=4.0, start_s=2 * DAY_S, end_s=3 * DAY_S),
    Plant(names.LEADER_TERM, "orders", "b1", value=5.0, start_s=3 * DAY_S),
    Plant(names.COPY_LAG, "orders", labels={"copy": "b2"}, value=5000.0),
    Plant(names.COPY_BEHIND, broker="b1", labels={"copy": "b2"}, value=5000.0),
    Plant(
        names.COPIED_LOGS, broker="b2", labels={"state": "leaderless"}, value=1.0, start_s=DAY_S, end_s=DAY_S + HOUR_S
    ),
)
FAULTS: Final = Faults(
    resets={"b1": [100, 200]},
    gaps={"b2": [(50, 60)]},
    duplicates={"b1": [5, 6], "b3": [7]},
    late={"b3": [20]},
    torn={"b4": [30]},
    corrupt={"b4": [40]},
    future={"b2": [300]},
    skew_ms={"b4": 7000},
    clock_ms={"b1": 40, "b2": -3000},
)
PLAN: Final = Plan(4, START_MS, SECONDS, INTERVAL_S, seed=7, plants=PLANTS, faults=FAULTS)
