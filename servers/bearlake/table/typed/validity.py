"""Whether bytes are values of a schema. No columns are made, so a few bytes never stand for many nulls.

A value is good if `codec.decode` finds no problem in it: bytes after the value, or an unusual form, are no problem. A value may nest at
most `kernel.LEVELS_MAX` levels. The work grows with the bytes of the values, whatever the schema is.
"""

import sys
from array import array
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

import pyarrow as pa

from bearlake import kernel
from bearlake.errors import BearlakeError
from bearlake.kernel import OUTCOME_BITS, TypedOutcome
from bearlake.table.typed import avro, codec, mapping
from bearlake.table.typed.model import SchemaError, SchemaType, TypedColumns

NODE_COUNT_MAX = 10_000
"""Types of a schema: the kernel reads all of them in each call."""
REASON_BYTES_MAX = 16 * 1024 * 1024
"""Columns that are made to find where a value is bad: a few bytes can stand for gigabytes of nulls."""
_GOOD = bytes(range(TypedOutcome.TRUNCATED))
_LOW_BYTE = 0 if sys.byteorder == "little" else 3
"""Where a status, an int32, has its outcome."""
_OUTCOME_MASK = (1 << OUTCOME_BITS) - 1


class AvroValidity:
    """Checks values of one Avro schema. Threads may share it."""

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
        offsets = memoryview(array("i", accumulate(map(len, values), initial=0))).cast("B")
        statuses, _ = kernel.decode_avro(
            self._nodes, None, offsets, b"".join(values), 0, len(values), skip, 0, codec.BYTES_MAX
        )
        numbers = memoryview(statuses).cast("B").cast("i")
        if not bytes(statuses)[_LOW_BYTE::4].translate(None, _GOOD):
            return []
        return [at for at, status in enumerate(numbers) if status & _OUTCOME_MASK >= TypedOutcome.TRUNCATED]

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
