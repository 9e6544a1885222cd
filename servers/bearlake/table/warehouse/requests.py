"""What clients of the catalog ask for: the parts of a new table, a check of what a commit replaces, and repeats of commits."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import AddSnapshotUpdate, ValidatableTableRequirement

from bearlake.table.warehouse.model import Body, Name, invalid


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


def request_of(name: Name, body: Body) -> CommitTableRequest:
    """Parse a commit to a table."""
    return CommitTableRequest.model_validate({**body, "identifier": {"namespace": list(name[:-1]), "name": name[-1]}})


def is_done(updates: Sequence[Any], metadata: TableMetadata) -> bool:
    """Return whether a commit with these updates (Any: PyIceberg's closed union) has happened already: the table has all of its snapshots.

    A client, or a proxy in front of it, repeats a commit whose answer was lost. If the repeat was refused as a conflict, the client would
    delete the manifests that the first one has committed.
    """
    known = {snapshot.snapshot_id: snapshot.manifest_list for snapshot in metadata.snapshots}
    added = [change.snapshot for change in updates if isinstance(change, AddSnapshotUpdate)]
    return bool(added) and all(known.get(snapshot.snapshot_id) == snapshot.manifest_list for snapshot in added)


def texts_of(value: object) -> dict[str, str]:
    """Return the properties in a request; none if it has none. Raises `Refused`."""
    if value is not None and not isinstance(value, dict):
        raise invalid("expected properties: an object of texts")
    return {str(key): str(text) for key, text in (value or {}).items()}
