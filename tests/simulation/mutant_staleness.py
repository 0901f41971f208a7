"""Mutants of bounded staleness."""

from __future__ import annotations

from raybroker.core import command as cmd
from raybroker.core.durable import records
from raybroker.core.staleness.version_index import VersionIndex
from raybroker.core.staleness.version_pending import VersionPending
from tests.simulation.mutation import Patch, mutant, without


@mutant("a message that is too far behind is stale, and no other is")
def one_version_more(patch: Patch) -> None:
    old = VersionIndex.oldest.fget  # type: ignore[attr-defined]  # it is a property
    patch.set(VersionIndex, "oldest", property(lambda self: old(self) - 1))


@mutant("what waits is judged when a version is published")
def only_what_comes_is_judged(patch: Patch) -> None:
    old = VersionPending.publish

    def publish(self: VersionPending, version: int) -> None:
        old(self, version)
        self.versions.news = self.versions.far = False

    patch.set(VersionPending, "publish", publish)


@mutant("what was not looked at goes to nobody")
def unknown_versions_go(patch: Patch) -> None:
    old = VersionPending.publish

    def publish(self: VersionPending, version: int) -> None:
        old(self, version)
        self.backlog.compares = False

    patch.set(VersionPending, "publish", publish)


@mutant("what comes back is judged again")
def returned_ones_are_fresh(patch: Patch) -> None:
    patch.set(VersionPending, "put_back", lambda self, run, classify=None: self.backlog.give_back(run))


@mutant("a published version is on disk")
def versions_are_not_recorded(patch: Patch) -> None:
    patch.after(cmd.PublishVersion, lambda destination, command, out: without(out, records.VERSION))


@mutant("the published version is there after a restart")
def versions_are_not_recovered(patch: Patch) -> None:
    from raybroker.core.durable import recovery

    patch.item(recovery._HANDLERS_OF_KIND, records.VERSION, lambda self, record: None)


@mutant("stale messages go behind all others, and to their old place when they are fresh again")
def behind_for_ever(patch: Patch) -> None:
    def look_again(self: VersionPending) -> None:
        self.versions.far = False
        if self.backlog.count:
            self.backlog.unsort()
            self.unfinished = True

    patch.set(VersionPending, "_look_again", look_again)
