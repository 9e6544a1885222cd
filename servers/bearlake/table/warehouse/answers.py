"""Tables as JSON, for answers of the catalog (LoadTableResult), and their owners."""

import json
from uuid import UUID

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from bearlake.table.applied_tasks import STREAM_ID_PROPERTY
from bearlake.table.naming import CURRENT_PROPERTY
from bearlake.table.warehouse.model import SNAPSHOTS_REFS, Answer, Owner


def owner_of(metadata: TableMetadata) -> Owner:
    """Return the owner of a table with this metadata."""
    current_of = metadata.properties.get(CURRENT_PROPERTY)
    text = metadata.properties.get(STREAM_ID_PROPERTY) if current_of is None else current_of
    return Owner(
        stream_id=None if text is None else UUID(text),
        table_uuid=metadata.table_uuid,
        last_column_id=metadata.last_column_id,
        is_current=current_of is not None,
    )


def answer_of(table: Table, snapshots: str = "") -> Answer:
    """Return the answer with a table; `snapshots`: one of `SNAPSHOTS_…`, empty as all."""
    text = table.metadata.model_dump_json()
    if snapshots == SNAPSHOTS_REFS:
        named = {ref.snapshot_id for ref in table.metadata.refs.values()}
        parsed = json.loads(text)
        parsed["snapshots"] = [found for found in parsed.get("snapshots", ()) if found["snapshot-id"] in named]
        text = json.dumps(parsed, separators=(",", ":"))
    location = table.metadata_location
    return Answer(
        body=body_of(location, text),
        owner=owner_of(table.metadata),
        version=f"{location} {snapshots}",
        location=table.metadata.location,
    )


def body_of(location: str | None, metadata: str) -> bytes:
    """Return the body of an answer; `location` None: the table does not exist yet."""
    place = "" if location is None else f'"metadata-location":{json.dumps(location)},'
    return f'{{{place}"metadata":{metadata},"config":{{}}}}'.encode()
