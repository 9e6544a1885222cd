"""What the catalog's routes take and answer with, for its OpenAPI document. Bodies are those of Iceberg's own specification."""

from collections.abc import Mapping

from bearlake.protocols.rest.iceberg.rights import NEEDED, TABLE, live, planned
from bearlake.serving.http.models import Model
from bearlake.serving.http.openapi.model import ANYTHING, TEXT, Description, Operation, query

TYPES = ("application/json",)


class ErrorModel(Model):
    """An error in Iceberg's form."""

    message: str
    type: str
    code: int


class IcebergError(Model):
    """The body of an error answer."""

    error: ErrorModel


_EMPTY = frozenset(
    (method, path) for method, path in NEEDED if method in ("HEAD", "DELETE") or path.endswith(("/metrics", "/rename"))
)
_FAILED = (400, 401, 403, 404, 406, 413, 429, 500, 503)
_QUERIES = {
    ("GET", "/v1/config"): (query("warehouse", TEXT),),
    ("GET", "/v1/namespaces"): (query("parent", TEXT),),
    ("GET", "/v1/namespaces/{namespace}/tables/{table}"): (query("snapshots", {"enum": ["all", "refs"]}),),
    ("DELETE", "/v1/namespaces/{namespace}/tables/{table}"): (query("purgeRequested", TEXT),),
}


def _operation(method: str, path: str) -> Operation:
    if path in ("/openapi.json", "/docs"):
        return Operation((200,), (429, 503), ("application/json" if path == "/openapi.json" else "text/html",))
    is_load = method == "GET" and path in (TABLE, live(TABLE), planned(TABLE))
    return Operation(
        (204,) if (method, path) in _EMPTY else (200, 304) if is_load else (200,),
        _FAILED if method in ("GET", "HEAD") else (*_FAILED, 409, 422, 504),
        () if (method, path) in _EMPTY else TYPES,
        dict.fromkeys(TYPES, ANYTHING) if method == "POST" else None,
        parameters=_QUERIES.get((method, path), ()),
    )


OPERATIONS: Mapping[tuple[str, str], Operation] = {route: _operation(*route) for route in NEEDED}
"""Every route."""

DESCRIPTION = Description("Bearlake Iceberg REST catalog", OPERATIONS, {}, TYPES, IcebergError)
"""What the catalog's OpenAPI document says beyond the docstrings of its handlers."""
