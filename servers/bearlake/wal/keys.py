"""Keys of WAL objects: `wal/<yyyymmddhh>/<uuid>`, the UTC hour and a UUIDv7 of the time of sealing.

Keys sort by time, so a listing by age reads only the hours requested. Two objects never share a key, even across servers.
Source: RFC 9562, section 5.7 (UUIDv7: 48 bits of Unix milliseconds, 74 random bits).
"""

import re
import uuid
from collections.abc import Callable

from bearlake.clock import Clock
from bearlake.errors import Invalid
from bearlake.metadata import tokens

PREFIX = tokens.PREFIX
hour_prefix = tokens.hour_prefix

_KEY = re.compile(r"wal/(\d{10})/([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})", re.ASCII)
_HOUR_MS = 3_600_000
_TIME_BITS = 48
_RANDOM_BITS = 74
_RANDOM_B_BITS = 62


def uuid7(time_ms: int, random_bits: int) -> uuid.UUID:
    """Build a UUIDv7 from `time_ms` (Unix milliseconds, 0 <= time_ms < 2**48) and 74 random bits."""
    return uuid.UUID(int=_uuid7_int(time_ms, random_bits))


def _uuid7_int(time_ms: int, random_bits: int) -> int:
    if not 0 <= time_ms < 1 << _TIME_BITS or not 0 <= random_bits < 1 << _RANDOM_BITS:
        raise ValueError("a UUIDv7 has 48 bits of time and 74 random bits")
    random_a, random_b = divmod(random_bits, 1 << _RANDOM_B_BITS)
    return time_ms << 80 | 0x7 << 76 | random_a << 64 | 0b10 << 62 | random_b


class KeySource:
    """Makes the keys of one server's WAL objects; keys of different milliseconds sort by time."""

    def __init__(self, clock: Clock, random_bits: Callable[[int], int], prefix: str = PREFIX) -> None:
        """`random_bits(n)` returns n random bits: `random.SystemRandom().getrandbits` in a server, seeded in a test."""
        self._clock = clock
        self._random_bits = random_bits
        self._prefix = prefix
        self._hour = -1
        self._hour_prefix = ""

    def next(self) -> str:
        """Return a new key."""
        now_ms = self._clock.now_ms()
        hour = now_ms // _HOUR_MS
        if hour != self._hour:  # formatting a date costs as much as sealing a small object
            self._hour, self._hour_prefix = hour, hour_prefix(now_ms, self._prefix)
        text = f"{_uuid7_int(now_ms, self._random_bits(_RANDOM_BITS)):032x}"  # a UUID object would cost twice the rest of the key
        return f"{self._hour_prefix}{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def created_ms(key: str) -> int:
    """Return when the object was sealed, by its writer's clock, in Unix milliseconds.

    Raises:
        Invalid: `key` is not the key of a WAL object, or its hour contradicts its UUID.
    """
    match = _KEY.fullmatch(key)
    if match is None:
        raise Invalid(f"{key!r} is not the key of a WAL object: expected wal/<yyyymmddhh>/<UUIDv7>")
    time_ms = uuid.UUID(match[2]).int >> 80
    try:
        prefix = hour_prefix(time_ms)
    except OverflowError:
        prefix = ""
    if not key.startswith(prefix or "\0"):
        raise Invalid(f"{key!r}: the hour contradicts the UUID")
    return time_ms
