"""Writes the table of all metrics into dashboards/README.md: python -m dashboards.reference"""

from __future__ import annotations

from pathlib import Path

from raybroker.metrics.catalogue import BROKERS, DESTINATIONS, Quantity

README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- metrics: begin -->\n", "<!-- metrics: end -->\n"


def _row(quantity: Quantity) -> str:
    labels = ", ".join(quantity.labels) or "-"
    return f"| `{quantity.key}` | {quantity.kind} | {labels} | {quantity.help} |"


def table() -> str:
    head = ["| metric | kind | labels | what |", "|---|---|---|---|"]
    parts = (
        (
            "Of destinations, in both tiers: `raybroker_…` by type, `raybroker_destination_…` by destination and type",
            [q for q in DESTINATIONS if q.scope == "destination"],
        ),
        ("In the destination tier alone: `raybroker_destination_…`", [q for q in DESTINATIONS if q.scope == "only"]),
        ("Of brokers: `raybroker_…`", list(BROKERS)),
    )
    return "\n".join(line for title, rows in parts for line in (f"{title}.", "", *head, *map(_row, rows), ""))


def written(text: str) -> str:
    """The README with the table as it has to be."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")
