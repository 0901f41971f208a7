"""Quotas as definitions."""

from __future__ import annotations

from typing import Any, Final

from raybroker.model.definitions.kinds.kind import Kind, Planning, Reading, Recorded, checked_table, verbs_of
from raybroker.model.definitions.quota import DEFAULTS, quota_of
from raybroker.model.definitions.values import Attributes, Changes, changed, differing, new_values
from raybroker.model.naming.names import check_quota_name


class QuotaKind(Kind):
    name = "quota"
    section = "quotas"
    verbs = verbs_of("quota")
    recorded = Recorded("quotas", "quota", "create_quota", "destroy_quota", "update_quota", referred=True, later=True)
    path = "/quotas"
    lists = "list_quotas"

    def entry(self, name: str, given: Any, reading: Reading) -> Attributes:
        check_quota_name(name)
        return differing(quota_of(checked_table(given)), DEFAULTS)

    def plan(self, planning: Planning) -> None:
        """What grants more comes before the destinations, what grants less after them (see :meth:`lower`): thresholds
        of destinations are within the limits all the time."""
        table = planning.now.quotas
        for name, wanted in planning.wanted.quotas.items():
            if name not in table:
                planning.step("create", self, name, changed({}, wanted), attributes=wanted)
                table[name] = wanted
            elif "Shared" in (found := changed(table[name], wanted, DEFAULTS)):
                planning.block("update", self.name, name, found, "Shared is fixed when a quota is created: destroy it")
            else:
                self._update(planning, name, {key: pair for key, pair in found.items() if _grants_more(*pair)})

    def lower(self, planning: Planning) -> None:
        for name, wanted in planning.wanted.quotas.items():
            if "Shared" not in (found := changed(planning.now.quotas[name], wanted, DEFAULTS)):
                self._update(planning, name, found)

    def _update(self, planning: Planning, name: str, found: Changes) -> None:
        if found:
            changes = new_values(found)
            planning.step("update", self, name, found, changes=changes)
            planning.now.quotas[name] = differing({**planning.now.quotas[name], **changes}, DEFAULTS)


def _grants_more(old: Any, new: Any) -> bool:
    """Return whether the new value of an attribute of a quota grants more; a text grants nothing, and may change
    first."""
    if isinstance(new, str):
        return True
    return bool(old >= 0 and (new < 0 or new > old))


QUOTA: Final = QuotaKind()
