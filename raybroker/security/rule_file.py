"""The file of access rules, read again when it has changed."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from raybroker.model.errors import ConfigError
from raybroker.security.access_rules import AccessRules, default_rules

FILE_BYTES_MAX: Final = 16 << 20

log = logging.getLogger("raybroker.security")


class RuleFile:
    """Blocks for the disk: a stat of the file for each :meth:`rules`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._missing = False
        self._rules: AccessRules | None = None

    def rules(self) -> AccessRules:
        """What holds now: the file, or DEFAULT_RULES without one.

        A file that cannot be read leaves what held before, which is said in the log. Raises ConfigError when nothing
        was read before.
        """
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            if self._rules is None or not self._missing:
                self._rules, self._missing, self._seen = default_rules(), True, None
                log.warning(
                    "[B2173] there is no file of access rules %s: every user may produce, consume, browse and create"
                    " everywhere",
                    self.path,
                )
            return self._rules
        except OSError as error:
            return self._kept(ConfigError(f"{self.path} cannot be read: {error}"))
        seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if seen == self._seen:
            assert self._rules is not None
            return self._rules
        try:
            if stat.st_size > FILE_BYTES_MAX:
                raise ConfigError(f"{self.path} has {stat.st_size} bytes; at most {FILE_BYTES_MAX} are read")
            rules = AccessRules.parse(self.path.read_text(encoding="utf-8"), str(self.path))
        except (OSError, UnicodeDecodeError) as error:
            return self._kept(ConfigError(f"{self.path} cannot be read: {error}"), seen)
        except ConfigError as error:
            return self._kept(error, seen)
        self._rules, self._seen, self._missing = rules, seen, False
        return rules

    @property
    def missing(self) -> bool:
        """There is no file, so that the default rules hold, by which every user may use every destination."""
        return not self.path.exists()

    def _kept(self, error: ConfigError, seen: tuple[int, int, int] | None = None) -> AccessRules:
        if self._rules is None:
            raise error
        log.error("[B2041] the access rules stay as they were: %s", error)
        self._seen = seen
        return self._rules
