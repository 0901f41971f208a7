"""Header hints: a producer may leave ids and times of packing out of its messages."""

from __future__ import annotations

from raybroker.client.arguments import check_arguments
from raybroker.client.producer.members.unnamed import OwnProducer


class HeaderHints:
    """The producer of either face; what is set holds for the messages sent from then on."""

    _core: OwnProducer

    @property
    def _is_made(self) -> bool:
        """There is a producer behind it; not so in a copy that was not used yet."""
        return "_core" in self.__dict__

    @property
    def disable_message_id(self) -> bool:
        """True: who receives a message sees no id ("", and none in selectors).

        It travels with one all the same, by which the broker recognises what is sent twice: that is what ``send``
        returns, and what administrators see.
        """
        return self._is_made and not self._core.shared.named

    @disable_message_id.setter
    def disable_message_id(self, value: bool) -> None:
        check_arguments(disable_message_id=value)
        self._core.shared = self._core.shared._replace(named=not value)

    @property
    def disable_message_timestamp(self) -> bool:
        """True: the timestamp of a message is 0. Its expiration and delivery time are what they would be."""
        return self._is_made and not self._core.shared.stamped

    @disable_message_timestamp.setter
    def disable_message_timestamp(self, value: bool) -> None:
        check_arguments(disable_message_timestamp=value)
        self._core.shared = self._core.shared._replace(stamped=not value)
