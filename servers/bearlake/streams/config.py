"""One stream config: its name, type, default and meaning, and the check of a value."""

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from bearlake.errors import Invalid

LONG_MAX: Final = 2**63 - 1
"""Kafka's value for "no limit"."""
TABLE_NAME_LENGTH_MAX: Final = 249
BUCKET_COUNT_MAX: Final = 4_096
"""Buckets of a current table: each is a file, and each file a request of a query."""


class ConfigType(IntEnum):
    """Value types with the numbers of DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class Config:
    """One config: name, type, default (as text), meaning, smallest and largest number, and the allowed values or pattern."""

    name: str
    type: ConfigType
    default: str
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""

    def check(self, value: str) -> None:
        """Raise `Invalid`, naming the expected value, unless `value` is legal for this config."""
        if self.type in _NUMBERS:
            self._check_number(value)
        elif self.type is ConfigType.BOOLEAN and value.lower() not in ("true", "false"):
            raise Invalid(f"{self.name} = {value!r}: expected true or false")
        elif self.pattern and re.fullmatch(self.pattern, value) is None:
            raise Invalid(
                f"{self.name} = {value!r}: expected letters, digits, _ and -, at most {TABLE_NAME_LENGTH_MAX}"
            )
        elif self.choices:
            words = value.split(",") if self.type is ConfigType.LIST else [value]
            for word in words:
                if word.strip() not in self.choices:
                    raise Invalid(
                        f"{self.name} = {value!r}: expected one of {', '.join(c or repr(c) for c in self.choices)}"
                    )

    def _check_number(self, value: str) -> None:
        try:
            number = float(value) if self.type is ConfigType.DOUBLE else int(value)
        except ValueError as error:
            raise Invalid(f"{self.name} = {value!r}: expected a number ({self.type.name})") from error
        low, high = _NUMBERS[self.type]
        low = low if self.minimum is None else self.minimum
        high = high if self.maximum is None else self.maximum
        if not low <= number <= high:
            raise Invalid(f"{self.name} = {value!r}: expected a number from {low:g} to {high:g}")


_INT_MAX = 2**31 - 1
_NUMBERS: dict[ConfigType, tuple[float, float]] = {
    ConfigType.INT: (-(2**31), _INT_MAX),
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.LONG: (-(2**63), LONG_MAX),
    ConfigType.DOUBLE: (-1e308, 1e308),
}
