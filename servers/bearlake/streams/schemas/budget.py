"""Limits of one client request on child processes: processor time and size of answers. No other module decides such a limit.

    Budget     processor time of all children that one request needs
    Allowance  limits of one call of a child

Compiling and comparing take their allowance from the settings. Values take theirs from the size of the request: time and output grow
with the bytes that the client sent, so a small request cannot cause much work.
"""

from dataclasses import dataclass

from bearlake.streams.schemas.problems import SchemaTooLarge
from bearlake.streams.schemas.settings import SchemasSettings

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Limits of one call of a child."""

    processor_ms: int
    """User and system time."""
    answer_bytes: int
    """Size of the answer."""


class Budget:
    """The processor time of one client request, in milliseconds, and the size of its values. Calls of children take from both."""

    def __init__(self, settings: SchemasSettings) -> None:
        self._settings = settings
        self._left_ms = settings.request_time_ms_max
        self._left_bytes = settings.value_answer_bytes_max

    def compiling(self, answer_bytes_max: int) -> Allowance:
        """Return the limits to compile or compare. Raises `SchemaTooLarge`: the request has used up its time."""
        return Allowance(processor_ms=self._within(self._settings.compile_time_ms_max), answer_bytes=answer_bytes_max)

    def evaluating(self, size_bytes: int) -> Allowance:
        """Return the limits to read or write values of this size in total.

        Raises `SchemaTooLarge` as `compiling`, and if the values of earlier calls are as large as one request allows.
        """
        settings = self._settings
        if self.is_full:
            raise SchemaTooLarge(
                f"The values of the request become larger than {settings.value_answer_bytes_max} bytes"
            )
        needed_ms = settings.value_time_ms_max + settings.value_mebibyte_time_ms_max * size_bytes // MEBIBYTE
        return Allowance(
            processor_ms=self._within(needed_ms),
            answer_bytes=min(
                settings.value_bytes_max + settings.value_growth_max * size_bytes, settings.value_answer_bytes_max
            ),
        )

    @property
    def is_full(self) -> bool:
        """Whether the values so far are as large as one request allows."""
        return self._left_bytes <= 0

    def spend(self, processor_ms: int, value_bytes: int = 0) -> None:
        """Take the time that a child used, at least a millisecond, and the size of its values."""
        self._left_ms -= max(1, processor_ms)
        self._left_bytes -= value_bytes

    def _within(self, needed_ms: int) -> int:
        if self._left_ms <= 0:
            seconds = f"{self._settings.request_time_ms_max / 1000:g} s"
            raise SchemaTooLarge(f"The request needs more than {seconds} of processor time for its schemas")
        return min(needed_ms, self._left_ms)
