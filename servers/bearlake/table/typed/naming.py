"""Names of typed columns: unique in their struct, also for engines that ignore case, and at the top level none that is reserved.

Source: Apache Iceberg table spec, "Reserved Field IDs"; Iceberg's metadata columns in Spark (`_partition`, `_spec_id`, `_file`, `_pos`, …).
"""

from collections.abc import Iterable
from itertools import count
from typing import Final

RESERVED: Final = frozenset(
    {
        "_partition_id",
        "_offset",
        "_timestamp",
        "_key",
        "_headers",
        "_value",
        "_batch",
        "_schema_id",
        "_key_schema_id",
        "_error",
        "_file",
        "_pos",
        "_deleted",
        "_spec_id",
        "_partition",
        "_row_id",
        "_last_updated_sequence_number",
        "_change_type",
        "_change_ordinal",
        "_commit_snapshot_id",
    }
)
"""Names that a typed column at the top level does not get: ours, and those that engines give to metadata columns."""


class Names:
    """The names of one struct."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {name.casefold() for name in taken}

    def unique(self, name: str) -> str:
        """Return the name, or the name with the first free suffix `_2`, `_3`, …"""
        found = name
        for number in count(2):
            if found.casefold() not in self._taken:
                break
            found = f"{name}_{number}"
        self._taken.add(found.casefold())
        return found
