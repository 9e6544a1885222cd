"""What clients of the catalog ask for: the parts of a new table, files to register, and a check of what a commit replaces."""

import zlib
from typing import Any, Final, Literal, NamedTuple

from pyiceberg.io import InputFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import ValidatableTableRequirement

from bearlake.table.warehouse.model import Body

_GZIP: Final = 31
"""zlib's number for streams with gzip's header."""


class NewTable(NamedTuple):
    """The parts of a table to create."""

    schema: Schema
    partition_spec: PartitionSpec
    sort_order: SortOrder
    location: str
    properties: dict[str, str]

    @classmethod
    def of(cls, body: Body, location: str, properties: dict[str, str]) -> "NewTable":
        """Parse them."""
        spec, order = body.get("partition-spec"), body.get("write-order")
        return cls(
            Schema.model_validate(body["schema"]),
            PartitionSpec.model_validate(spec) if spec else UNPARTITIONED_PARTITION_SPEC,
            SortOrder.model_validate(order) if order else UNSORTED_SORT_ORDER,
            location,
            properties,
        )


class Verified(ValidatableTableRequirement):
    """Calls a check with the version that the commit replaces. Not part of the REST specification."""

    type: Literal["bearlake-verified"] = "bearlake-verified"
    verify: Any  # `Callable[[TableMetadata | None], None]`

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]  # PyIceberg's own name
        """See PyIceberg."""
        self.verify(base_metadata)


def expanded_size(file: InputFile, bytes_max: int) -> int:
    """Return the size of a metadata file, uncompressed; any size above `bytes_max` if it is larger than that."""
    if (size := len(file)) > bytes_max or not file.location.endswith((".gz.metadata.json", ".metadata.json.gz")):
        return size
    with file.open() as stream:
        return len(zlib.decompressobj(_GZIP).decompress(stream.read(), bytes_max + 1))
