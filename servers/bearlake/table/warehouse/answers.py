"""Tables as the catalog answers with them."""

import json
from uuid import UUID

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from bearlake.table.applied_tasks import STREAM_ID_PROPERTY
from bearlake.table.warehouse.model import SNAPSHOTS_REFS, Answer, Owner


def owner_of(metadata: TableMetadata) -> Owner:
    """Return the owner that a table's metadata names."""
    text = metadata.properties.get(STREAM_ID_PROPERTY)
    return Owner(stream_id=None if text is None else UUID(text), table_uuid=metadata.table_uuid)


def answer_of(table: Table, snapshots: str = "") -> Answer:
    """Return a loaded table; `snapshots`: one of `SNAPSHOTS_…`."""
    text = table.metadata.model_dump_json()
    if snapshots == SNAPSHOTS_REFS:
        named = {ref.snapshot_id for ref in table.metadata.refs.values()}
        parsed = json.loads(text)
        parsed["snapshots"] = [found for found in parsed.get("snapshots", ()) if found["snapshot-id"] in named]
        text = json.dumps(parsed, separators=(",", ":"))
    location = table.metadata_location
    return Answer(body=body_of(location, text), owner=owner_of(table.metadata), version=f"{location} {snapshots}")


def body_of(location: str | None, metadata: str) -> bytes:
    """Return a table as the specification's LoadTableResult. `metadata` is JSON; `location` None: it was not written yet."""
    place = "" if location is None else f'"metadata-location":{json.dumps(location)},'
    return f'{{{place}"metadata":{metadata},"config":{{}}}}'.encode()
