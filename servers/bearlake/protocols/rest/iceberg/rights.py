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
PLANNED = "planned"
"""The warehouse of the same views whose scans the server plans, likewise."""
PLAN = TABLE + "/plan"
PLAN_RESULT = PLAN + "/{plan}"
TASKS = TABLE + "/tasks"
CREDENTIALS = TABLE + "/credentials"


def live(path: str) -> str:
    """Return the path in the warehouse of live views."""
    return within(LIVE, path)


def planned(path: str) -> str:
    """Return the path in the warehouse of planned scans."""
    return within(PLANNED, path)


def within(warehouse: str, path: str) -> str:
    """Return the path in a warehouse with a prefix."""
    return path.replace("/v1/", f"/v1/{warehouse}/", 1)


def is_read(method: str, route: str) -> bool:
    """Whether requests of this route change nothing, so that a client may repeat one whose outcome it does not know."""
    return method in ("GET", "HEAD") or route == SQL or route.startswith((live("/v1/"), planned("/v1/")))


_CREATE, _ALTER = on(Resource.CLUSTER, Operation.CREATE), on(Resource.CLUSTER, Operation.ALTER)

_READING: Mapping[tuple[str, str], tuple[Right, ...]] = {
    ("GET", NAMESPACES): (),
    ("GET", NAMESPACE): (),
    ("HEAD", NAMESPACE): (),
    ("GET", TABLES): DESCRIBE_STREAM,
    ("GET", TABLE): READ_STREAM,
    ("HEAD", TABLE): DESCRIBE_STREAM,
    ("POST", TABLE): READ_STREAM,
    ("POST", TABLE + "/metrics"): (),
    ("GET", CREDENTIALS): READ_STREAM,
}

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
    ("GET", CREDENTIALS): READ_STREAM,
    ("POST", "/v1/tables/rename"): on(Resource.STREAM, Operation.ALTER, Operation.CREATE),
    **{(method, live(path)): rights for (method, path), rights in _READING.items()},
    **{(method, planned(path)): rights for (method, path), rights in _READING.items()},
    ("POST", planned(PLAN)): READ_STREAM,
    ("GET", planned(PLAN_RESULT)): READ_STREAM,
    ("DELETE", planned(PLAN_RESULT)): READ_STREAM,
    ("POST", planned(TASKS)): READ_STREAM,
    ("POST", SQL): READ_STREAM,
    ("GET", "/openapi.json"): (),
    ("GET", "/docs"): (),
}
"""The rights on the stream of the table; for a table that is no stream's, on a topic with the name `<namespace>.<table>`.

A commit of snapshots, branches and tags needs WRITE, any other change ALTER. A commit that creates the table needs CREATE. Renaming needs
ALTER on the table, and CREATE on the new name. Without DESCRIBE, a table seems not to exist. Tables under `/v1/live` and `/v1/planned`
can only be read.
"""
