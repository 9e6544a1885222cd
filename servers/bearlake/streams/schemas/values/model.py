"""The common interface of the three formats (`Values`), and the error for a value that does not fit its schema (`Unfit`)."""

from typing import Any, Protocol

from bearlake.errors import Invalid


class Unfit(Invalid):
    """A value, or its bytes, that the schema does not allow. The message names the place inside the value."""

    def __init__(self, reason: str, place: str = "") -> None:
        super().__init__(f"{place.removeprefix('.')}: {reason}" if place else reason)
        self.reason = reason
        self.place = place

    def within(self, step: str) -> "Unfit":
        """Return the same error with its place prefixed by a field (`.name`) or an item (`[3]`)."""
        return Unfit(self.reason, step + self.place)


class Values(Protocol):
    """Reads and writes the values of one schema. Both may take any time and memory: only child processes do them."""

    def write(self, value: Any) -> bytes:
        """Serialize a JSON value to the bytes after the schema's id (Any: any JSON value). Raises `Unfit`."""

    def read(self, octets: bytes) -> Any:
        """Deserialize the bytes after the schema's id to a JSON value. Raises `Unfit`."""

    def check(self, octets: bytes) -> None:
        """Check that the bytes after the schema's id are a value of the schema. Raises `Unfit`."""
        self.read(octets)
