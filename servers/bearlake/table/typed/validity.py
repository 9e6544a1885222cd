"""Whether bytes are values of a schema.

A value is good if `codec.decode` finds no problem in it: bytes after an Avro value, or an unusual form, are no problem. Of Avro no columns
are made, so a few bytes never stand for many nulls: the work grows with the bytes of the values, whatever the schema is, and a value may
nest at most `kernel.LEVELS_MAX` levels. Declared columns are made, in parts that take at most `COLUMN_BYTES_MAX`.
"""

import sys
from array import array
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from bearlake import kernel
from bearlake.errors import BearlakeError, TooLarge
from bearlake.kernel import OUTCOME_BITS, TypedOutcome
from bearlake.table.typed import avro, codec, declared, mapping
from bearlake.table.typed.model import SchemaError, SchemaType, TypedColumns, TypedField

NODE_COUNT_MAX = 10_000
"""Types of a schema: the kernel reads all of them in each call."""
REASON_BYTES_MAX = 16 * 1024 * 1024
"""Columns that are made to find where a value is bad: a few bytes can stand for gigabytes of nulls."""
if TYPE_CHECKING:
    from typing_extensions import Buffer

COLUMN_BYTES_MAX = 128 * 1024 * 1024
"""Columns that are made to check values by declared columns: a value that needs more is refused (SIZE)."""
LIGHT_NODE_COUNT_MAX = 32
"""Declared columns, nested ones included, with which the event loop may check values: a value without any of them costs as much."""
LIGHT_REPEATED_COUNT_MAX = 4
"""The same of the fields of one element of a list or map: `{}` is an element."""
_ROW_BYTES_PER_NODE = 17
"""Most bytes of a slot: a decimal and whether it is null."""
_GOOD = bytes(range(TypedOutcome.TRUNCATED))
_LOW_BYTE = 0 if sys.byteorder == "little" else 3
"""Where a status, an int32, has its outcome."""
_OUTCOME_MASK = (1 << OUTCOME_BITS) - 1


class AvroValidity:
    """Checks values of one Avro schema. Threads may share it."""

    is_light: ClassVar[bool] = True

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        """`references` are the schemas whose names the schema uses, each after those that it uses itself. Raises `SchemaError`."""
        self._text = text
        self._references = tuple(references)
        self._nodes = avro.value_nodes(text, references)
        if len(self._nodes) > NODE_COUNT_MAX:
            raise SchemaError(f"the schema has more than {NODE_COUNT_MAX} types")

    def failures(self, values: Sequence[bytes], skip: int) -> list[int]:
        """Return the places of the values that cannot be decoded, ascending; the first `skip` bytes of each are not part of it.

        The values have less than 2 GiB in all.
        """
        if not self._nodes or not values:
            return []
        statuses, _ = kernel.decode_avro(
            self._nodes, None, _offsets(values), b"".join(values), 0, len(values), skip, 0, codec.BYTES_MAX
        )
        return _failures(statuses)

    def reason(self, value: bytes, skip: int) -> str:
        """Return why a value cannot be decoded, and the path of the field where the decoder stopped if the schema has columns."""
        what = "not a value of the schema that it names"
        try:
            columns = self._columns
            column = pa.array([value], pa.binary())
            problem = codec.decode(columns, column, skip=skip, bytes_max=REASON_BYTES_MAX).problems.get(0)
        except BearlakeError:
            return what
        return what if problem is None or problem.outcome is TypedOutcome.SIZE else f"{what}: {problem}"

    @cached_property
    def _columns(self) -> TypedColumns:
        return mapping.columns_of(SchemaType.AVRO, self._text, self._references)


class ColumnsValidity:
    """Checks JSON objects by declared columns (`declared.py`): they are good if the table has columns of them. Threads may share it."""

    def __init__(self, text: str) -> None:
        """Raises `SchemaError`."""
        self._columns = declared.columns_of(text)
        widest = max(map(_repeated_count, self._columns.fields), default=0)
        self.is_light = len(self._columns.nodes) <= LIGHT_NODE_COUNT_MAX and widest <= LIGHT_REPEATED_COUNT_MAX
        self._at_once = max(1, COLUMN_BYTES_MAX // (8 * _ROW_BYTES_PER_NODE * len(self._columns.nodes)))

    def failures(self, values: Sequence[bytes], skip: int) -> list[int]:
        """As `AvroValidity.failures`."""
        found: list[int] = []
        for start in range(0, len(values), self._at_once):
            found += [start + at for at in self._failures(values[start : start + self._at_once], skip)]
        return found

    def _failures(self, values: Sequence[bytes], skip: int) -> list[int]:
        try:
            statuses, _ = kernel.decode_json(
                self._columns.nodes, None, _offsets(values), b"".join(values), 0, len(values), skip, COLUMN_BYTES_MAX
            )
        except TooLarge:  # never of one value
            half = len(values) // 2
            below = self._failures(values[:half], skip)
            return below + [half + at for at in self._failures(values[half:], skip)]
        return _failures(statuses)

    def reason(self, value: bytes, skip: int) -> str:
        """Return why a value does not fit its columns: the code that `_error` would have, and the path of the field."""
        statuses, _ = kernel.decode_json(
            self._columns.nodes, None, _offsets([value]), value, 0, 1, skip, COLUMN_BYTES_MAX
        )
        problem = codec.problem(self._columns, memoryview(statuses).cast("B").cast("i")[0])
        return f"does not fit the columns of the table: {problem}"


def _repeated_count(field: TypedField) -> int:
    """Return the fields of an element of the list or map with the most of them, in a field."""
    if field.type in ("list", "map"):
        return sum(map(_field_count, field.children))
    return max(map(_repeated_count, field.children), default=0)


def _field_count(field: TypedField) -> int:
    return 1 + sum(map(_field_count, field.children))


def _offsets(values: Sequence[bytes]) -> memoryview:
    return memoryview(array("i", accumulate(map(len, values), initial=0))).cast("B")


def _failures(statuses: "Buffer") -> list[int]:
    """Return the places of the statuses that are problems."""
    if not bytes(statuses)[_LOW_BYTE::4].translate(None, _GOOD):
        return []
    numbers = memoryview(statuses).cast("B").cast("i")
    return [at for at, status in enumerate(numbers) if status & _OUTCOME_MASK >= TypedOutcome.TRUNCATED]
