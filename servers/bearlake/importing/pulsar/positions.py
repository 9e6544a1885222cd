"""Places of entries in a Pulsar topic, and how a record batch says which entry it was.

A `Place` is the ledger and the number of an entry there. Ledgers grow within a topic, so places are ordered as the entries are. The batch
of a copied entry has its place in the fields of its producer, which Pulsar's batches do not use (decision 297):

    producer id     int64   the ledger
    producer epoch  int16   the entry's number >> 31
    base sequence   int32   the entry's number & 0x7fffffff

They are stored, compacted and served with the batch, and committed with it. So a partition always knows up to where it is copied.
"""

import re
from struct import Struct
from typing import NamedTuple

from bearlake import kernel
from bearlake.errors import Corrupt, Invalid

_PRODUCER = Struct(">qhi")
_PRODUCER_AT = 43
_CHECKSUM = Struct(">I")
_CHECKSUM_AT, _CHECKSUM_START = 17, 21
_LOW_BITS = 31
_LOW = (1 << _LOW_BITS) - 1
_ENTRY_MAX = (1 << (_LOW_BITS + 15)) - 1
_LEDGER_MAX = (1 << 63) - 1
_PLACE = re.compile(r"(-1|[0-9]{1,19}):(-1|[0-9]{1,19})")


class Place(NamedTuple):
    """An entry of the source. Entry -1: before the first one of its ledger."""

    ledger: int
    entry: int

    def __str__(self) -> str:
        """As Pulsar's tools show it."""
        return f"{self.ledger}:{self.entry}"


FIRST = Place(-1, -1)
"""Before all entries."""


def parse(text: str) -> Place:
    """Return the place in Pulsar's notation, `LEDGER:ENTRY`. Raises `Corrupt`."""
    found = _PLACE.fullmatch(text.strip())
    if found is not None:
        return Place(int(found[1]), int(found[2]))
    raise Corrupt(f"the source gives {text[:60]!r} as a position: expected LEDGER:ENTRY")


def ranges(text: str) -> list[tuple[Place, Place]]:
    """Return ranges of places `(after, through]` in Pulsar's notation: `[(3:0..3:2],(3:4..3:5]]`. Raises `Corrupt`."""
    found: list[tuple[Place, Place]] = []
    inner = text.strip().removeprefix("[").removesuffix("]")
    for part in inner.split(","):
        words = part.strip()
        if not words:
            continue
        after, dots, through = words[1:].removesuffix("]").partition("..")
        if words[0] != "(" or not dots:
            raise Corrupt(f"the source gives {words[:60]!r} as a range: expected (LEDGER:ENTRY..LEDGER:ENTRY]")
        found.append((parse(after), parse(through)))
    return found


def marked(batch: bytes, place: Place) -> bytes:
    """Return the batch with the place of its entry. Raises `Invalid` for a place that has no room there."""
    if not (0 <= place.ledger <= _LEDGER_MAX and 0 <= place.entry <= _ENTRY_MAX):
        raise Invalid(f"entry {place} of the source has an impossible id")
    out = bytearray(batch)
    _PRODUCER.pack_into(out, _PRODUCER_AT, place.ledger, place.entry >> _LOW_BITS, place.entry & _LOW)
    _CHECKSUM.pack_into(out, _CHECKSUM_AT, kernel.crc32c(out, _CHECKSUM_START))
    return bytes(out)


def place_of(batch: memoryview) -> Place | None:
    """Return the place of a batch's entry; None if the batch has none."""
    ledger, high, low = _PRODUCER.unpack_from(batch, _PRODUCER_AT)
    return Place(ledger, high << _LOW_BITS | low) if ledger >= 0 and high >= 0 and low >= 0 else None
