"""The kind of a definition: the one declaration from which all that handles definitions is made.

A kind says how its entries stand in a definition file (``read``, ``plain``) and in the configuration change record
(``recorded``, ``of_record``), how a broker lists them (``lists``, ``listed``), by which administrative verbs they are
made, changed and undone (``verbs``), how two entries are compared (``compared``), and which steps an import takes
(``plan`` for what is wanted, ``end`` for what is not).  The table of kinds is
:mod:`raybroker.model.definitions.kinds.table`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from raybroker.model.definitions.values import Attributes, Changes, Defaults, Definitions, changed, differing
from raybroker.model.errors import BrokerError, ConfigError

DOWN: Final = "the broker is down: import again when it is up"


@dataclass(frozen=True)
class KindStep:
    """``changes``: attribute → (old value, new value), None where there is none; ``blocked``: why the verb is not
    tried, "" for most."""

    action: str
    kind: str
    name: str
    changes: Changes = field(default_factory=dict)
    verb: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)
    blocked: str = ""


@dataclass(frozen=True)
class KindPlace:
    """The place that a plan is for. ``configured``: broker → what its configuration says of properties that can change;
    ``automatic``: destinations that were created automatically; ``agents``: whether forwarding agents are possible;
    ``down``: brokers that cannot be asked what they have; ``together``: properties that all brokers have equally;
    ``users``: whether users are looked at."""

    defaults: Defaults = field(default_factory=Defaults.from_config)
    configured: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    automatic: Collection[tuple[str, str]] = ()
    agents: bool = True
    down: Collection[str] = ()
    together: Collection[str] = ()
    users: bool = False


@dataclass(frozen=True)
class Reading:
    """What entries are read with. ``selector`` checks one, and brings it into the form that brokers keep."""

    defaults: Defaults
    selector: Callable[[str], str] = lambda text: text


Row = Mapping[str, object]


def _nothing(row: Row) -> Row:
    return {}


def itself(row: Row) -> Row:
    """Return the row of a kind whose rows are attributes of destinations."""
    return row


def in_attributes(row: Row) -> Row:
    """Return the attributes of a row of a kind that has these in a field of its own."""
    found = row.get("attributes")
    return found if isinstance(found, Mapping) else {}


@dataclass(frozen=True)
class Recorded:
    """One kind.

    table     of the state of a record
    word      in messages
    make      the change that makes one
    end       the change that ends one
    change    the one that changes one; ``make`` where that replaces what there is, "" where one that differs is ended
              and made again
    parts     whether the attributes of ``make`` are put to those that there are, and those that ``end`` names go
    naming    the attributes of a row that may name a quota
    referred  whether others name it, so that it ends after these were changed
    in_topic  whether it goes with its topic
    stays     whether one that was ended may still be on a broker whose copy of the record is behind
    later     whether records of earlier releases do not have the table
    seldom    whether it is left out where there is nothing in it
    """

    table: str
    word: str
    make: str
    end: str
    change: str = ""
    parts: bool = False
    naming: Callable[[Row], Row] = _nothing
    referred: bool = False
    in_topic: bool = False
    stays: bool = False
    later: bool = False
    seldom: bool = False


class Kind(ABC):
    """One kind.

    name      in the steps of an import
    section   of a definition file, and the table of Definitions
    verbs     what is done → the administrative verb that does it
    said      fields of an entry that need not be said, with what they are then
    recorded  how it stands in the configuration change record; None for what is in no record
    path      of administration over HTTP, for one that goes by its name alone; "" for one that has paths of its own
    lists     the verb by which a broker that is alone lists them; "" for what it knows otherwise
    last      whether it is planned after the others: it holds for whole brokers
    """

    name: str
    section: str
    verbs: ClassVar[Mapping[str, str]]
    said: ClassVar[Mapping[str, Any]] = {}
    recorded: ClassVar[Recorded | None] = None
    path: ClassVar[str] = ""
    lists: ClassVar[str] = ""
    last: ClassVar[bool] = False

    # ---- definition files

    @abstractmethod
    def entry(self, name: str, given: Any, reading: Reading) -> Any:
        """The checked entry, without its defaults."""

    def read(self, given: Any, reading: Reading) -> dict[Any, Any]:
        """The entries of a section; raises ConfigError naming the one that is wrong."""
        if not isinstance(given, Mapping):
            raise ConfigError(f"{self.section} = {str(given)[:80]!r}; it is a table of names")
        found = {}
        for name, entry in given.items():
            with naming(f"{self.section}, {name}"):
                found[name] = self.entry(name, entry, reading)
        return found

    def plain(self, table: Mapping[Any, Any]) -> Any:
        """Return the table as a file has it, in order of names."""
        return {
            name: {
                key: dict(value) if isinstance(value, Mapping) else value
                for key, value in differing(table[name], self.said).items()
            }
            for name in sorted(table)
        }

    # ---- what there is

    def of_record(self, key: tuple[str, ...], row: Mapping[str, Any], reading: Reading) -> Iterator[tuple[Any, Any]]:
        """The keys and entries of a row of the record."""
        yield key[0], self.entry(key[0], row, reading)

    def listed(self, row: Attributes, reading: Reading) -> Iterator[tuple[Any, Any]]:
        """The keys and entries of a row of ``lists``."""
        yield row["name"], self.entry(row["name"], row["attributes"], reading)

    def is_defined(self, definitions: Definitions, key: Any) -> bool:
        """Whether an entry is a definition by itself."""
        return True

    # ---- steps

    def table(self, definitions: Definitions) -> dict[Any, Any]:
        return definitions.table(self.section)

    def entries(self, definitions: Definitions) -> list[tuple[str, Any]]:
        """How each is shown, and its key."""
        return [(self.shown(key), key) for key in self.table(definitions)]

    def shown(self, key: Any) -> str:
        return str(key)

    def args(self, key: Any) -> Attributes:
        """The arguments of its verbs that say which one is meant."""
        return {"name": key}

    def compared(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Changes:
        """What an import shows as the difference of two entries."""
        return changed(before, after)

    @abstractmethod
    def plan(self, planning: Planning) -> None:
        """The steps that make and change what is wanted."""

    def unwanted(self, planning: Planning) -> list[Any]:
        """The keys of what there is and is not wanted."""
        wanted = self.table(planning.wanted)
        return [key for key in self.table(planning.now) if key not in wanted and self.is_defined(planning.now, key)]

    def plan_end(self, planning: Planning, key: Any) -> None:
        """The step that ends what is not wanted."""
        row = self.table(planning.now).pop(key)
        planning.step("destroy", self, key, self.compared(row, {}))


def verbs_of(word: str) -> dict[str, str]:
    """Return the verbs of a kind that has one for each action."""
    return {action: f"{action}_{word}" for action in ("create", "update", "destroy")}


class ListedKind(Kind):
    """A kind that a file has as a list of tables; entries have keys of several fields."""

    @abstractmethod
    def read_entry(self, given: Mapping[str, Any], reading: Reading) -> tuple[Any, Any]:
        """The key and the entry of one."""

    @abstractmethod
    def twice(self, key: Any) -> str:
        """What is said of one that is there twice."""

    def read(self, given: Any, reading: Reading) -> dict[Any, Any]:
        if isinstance(given, str | bytes | Mapping) or not hasattr(given, "__iter__"):
            raise ConfigError(f"{self.section} = {str(given)[:80]!r}; it is a list of tables")
        found: dict[Any, Any] = {}
        for number, entry in enumerate(given, 1):
            name = entry.get("name", number) if isinstance(entry, Mapping) else number
            with naming(f"{self.section}, {str(name)[:80]}"):
                key, made = self.read_entry(checked_table(entry), reading)
                if key in found:
                    raise ConfigError(self.twice(key))
                found[key] = made
        return found


class Planning:
    """A plan in the making: each step is carried out on ``now``, a copy of what there was ``before``."""

    def __init__(self, before: Definitions, wanted: Definitions, place: KindPlace, prune: bool) -> None:
        self.before = before
        self.now = before.copy()
        self.wanted = wanted
        self.place = place
        self.prune = prune
        self.steps: list[KindStep] = []

    def step(self, action: str, kind: Kind, key: Any, found: Changes, /, **args: Any) -> None:
        """Add a step by the kind's verb; ``args``: beside those that say which one is meant."""
        self.steps.append(
            KindStep(action, kind.name, kind.shown(key), found, kind.verbs[action], {**kind.args(key), **args})
        )

    def block(self, action: str, kind: str, name: str, found: Changes, why: str) -> None:
        self.steps.append(KindStep(action, kind, name, found, blocked=why))

    def require_quota(self, attributes: Mapping[str, Any], label: str) -> None:
        quota = attributes.get("quota")
        if quota and quota not in self.now.quotas:
            raise ConfigError(f"{label}: there is no quota {quota!r}, here or among these definitions")
        if quota and self.prune and quota not in self.wanted.quotas:
            raise ConfigError(f"{label}: its quota {quota!r} is not among these definitions, and would be destroyed")


def checked_table(entry: Any) -> Mapping[str, Any]:
    """An entry of a file, which is a table; raises ConfigError."""
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{str(entry)[:80]!r} is no table of attributes and values")
    for name in entry:
        if not isinstance(name, str):
            raise ConfigError(f"{str(name)[:80]!r} is no name of an attribute; that is a text")
    return entry


@contextmanager
def naming(entry: str) -> Iterator[None]:
    """Put the entry in front of what is wrong with it."""
    try:
        yield
    except BrokerError as error:
        raise ConfigError(f"{entry}: {error}") from None
