"""What the three formats have in common: a schema's values, and the error of a value that is none of them."""

from typing import Any, Protocol

from bearlake.errors import Invalid


class Unfit(Invalid):
    """A value, or the bytes of one, that the schema does not allow. The message names the place inside the value."""

    def __init__(self, reason: str, place: str = "") -> None:
        super().__init__(f"{place.removeprefix('.')}: {reason}" if place else reason)
        self.reason = reason
        self.place = place

    def within(self, step: str) -> "Unfit":
        """The same, seen from outside of the field (`.name`) or item (`[3]`)."""
        return Unfit(self.reason, step + self.place)


class Values(Protocol):
    """The values of one schema. Safe to use from several threads."""

    @property
    def record_name(self) -> str | None:
        """The name that subjects can be made of: the record's, or message's full name, or the title."""

    def is_quick(self, size_bytes: int) -> bool:
        """Whether writing values of about that size takes time in proportion to it, whatever the schema says."""

    def write(self, value: Any) -> bytes:
        """A JSON value as what stands behind the schema's id (Any: whatever JSON can say). Raises `Unfit`."""

    def read(self, octets: bytes) -> Any:
        """The JSON value that these bytes, from behind the schema's id, stand for. Raises `Unfit`."""
