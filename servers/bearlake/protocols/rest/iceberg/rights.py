"""The rights that each route needs. A table for readers: documentation is generated from it, and a test compares it with the routes."""

from collections.abc import Mapping

from bearlake.streams.access.rights import CREATE_STREAM, DELETE_STREAM, DESCRIBE_STREAM, READ_STREAM, Right, on
from bearlake.streams.principal import Operation, Resource

NAMESPACES = "/v1/namespaces"
NAMESPACE = NAMESPACES + "/{namespace}"
TABLES = NAMESPACE + "/tables"
TABLE = TABLES + "/{table}"
SQL = "/v1/sql"
LIVE = "live"
"""The warehouse of live views: its name, and the prefix of its paths."""


def live(path: str) -> str:
    """Return the path in the warehouse of live views."""
    return path.replace("/v1/", f"/v1/{LIVE}/", 1)


_CREATE, _ALTER = on(Resource.CLUSTER, Operation.CREATE), on(Resource.CLUSTER, Operation.ALTER)

NEEDED: Mapping[tuple[str, str], tuple[Right, ...]] = {
    ("GET", "/v1/config"): (),
    ("GET", NAMESPACES): (),
    ("POST", NAMESPACES): _CREATE,
    ("GET", NAMESPACE): (),
    ("HEAD", NAMESPACE): (),
    ("DELETE", NAMESPACE): _ALTER,
    ("POST", NAMESPACE + "/properties"): _ALTER,
    ("GET", TABLES): DESCRIBE_STREAM,
    ("POST", TABLES): CREATE_STREAM,
    ("POST", NAMESPACE + "/register"): CREATE_STREAM,
    ("GET", TABLE): READ_STREAM,
    ("HEAD", TABLE): DESCRIBE_STREAM,
    ("POST", TABLE): on(Resource.STREAM, Operation.WRITE, Operation.ALTER),
    ("DELETE", TABLE): DELETE_STREAM,
    ("POST", TABLE + "/metrics"): (),
    ("POST", "/v1/tables/rename"): on(Resource.STREAM, Operation.ALTER, Operation.CREATE),
    ("GET", live(NAMESPACES)): (),
    ("GET", live(NAMESPACE)): (),
    ("HEAD", live(NAMESPACE)): (),
    ("GET", live(TABLES)): DESCRIBE_STREAM,
    ("GET", live(TABLE)): READ_STREAM,
    ("HEAD", live(TABLE)): DESCRIBE_STREAM,
    ("POST", live(TABLE)): READ_STREAM,
    ("POST", live(TABLE) + "/metrics"): (),
    ("POST", SQL): READ_STREAM,
    ("GET", "/openapi.json"): (),
    ("GET", "/docs"): (),
}
"""The rights on the stream of the table; for a table that is no stream's, on a topic with the name `<namespace>.<table>`.

A commit of snapshots, branches and tags needs WRITE, any other change ALTER. A commit that creates the table needs CREATE. Renaming needs
ALTER on the table, and CREATE on the new name. Without DESCRIBE, a table seems not to exist. Tables under `/v1/live` can only be read.
"""
