"""All errors that raybroker raises; see the table in the module they come from for which can be retried."""

from raybroker.model import errors as _errors
from raybroker.model.errors import *  # noqa: F403 - the table is the list

__all__ = [kind.__name__ for kind in _errors.BY_CODE.values()]
