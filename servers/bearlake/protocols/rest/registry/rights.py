"""The rights that each route needs. A table for readers: documentation is generated from it, and a test compares it with the routes.

Every route but those of `OUTSIDE` exists inside a context too, and needs the same rights there.
"""

from collections.abc import Mapping

from bearlake.streams.access.rights import Right, on
from bearlake.streams.principal import Operation, Resource

_DESCRIBE, _READ, _WRITE, _ALTER, _DELETE = (
    on(Resource.SUBJECT, operation)
    for operation in (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.ALTER, Operation.DELETE)
)
_ID, _GUID = "/schemas/ids/{id}", "/schemas/guids/{guid}"
_SUBJECT = "/subjects/{subject}"
_VERSIONS = _SUBJECT + "/versions"
_VERSION = _VERSIONS + "/{version}"
_CHECKS = "/compatibility/subjects/{subject}/versions"

EVERYWHERE: Mapping[tuple[str, str], tuple[Right, ...]] = {
    ("GET", "/schemas"): _READ,
    ("GET", "/schemas/types"): (),
    ("GET", _ID): _READ,
    ("GET", _ID + "/schema"): _READ,
    ("GET", _ID + "/subjects"): _DESCRIBE,
    ("GET", _ID + "/versions"): _DESCRIBE,
    ("GET", _GUID): _READ,
    ("GET", _GUID + "/ids"): _READ,
    ("GET", "/subjects"): _DESCRIBE,
    ("POST", _SUBJECT): _READ,
    ("DELETE", _SUBJECT): _DELETE,
    ("GET", _SUBJECT + "/metadata"): _READ,
    ("GET", _VERSIONS): _DESCRIBE,
    ("POST", _VERSIONS): _WRITE,
    ("GET", _VERSION): _READ,
    ("DELETE", _VERSION): _DELETE,
    ("GET", _VERSION + "/schema"): _READ,
    ("GET", _VERSION + "/referencedby"): _READ,
    ("POST", _CHECKS): _READ,
    ("POST", _CHECKS + "/{version}"): _READ,
    **{
        (method, path): needed
        for path in ("/config", "/config/{subject}", "/mode", "/mode/{subject}")
        for method, needed in (("GET", _DESCRIBE), ("PUT", _ALTER), ("DELETE", _DESCRIBE + _ALTER))
    },
}
"""All of these rights on the subject that the request names; without a subject, on the context (`:.context:`) or the registry
(`__GLOBAL`). A schema by its id or guid: on the context, or on one of the subjects that use it. A schema in a body also needs READ on the
subjects that it references, as does a schema in the format `resolved`. A schema in a body with an id also needs WRITE on the context."""

OUTSIDE: Mapping[tuple[str, str], tuple[Right, ...]] = {
    ("GET", "/contexts"): _DESCRIBE,
    ("GET", "/"): (),
    ("GET", "/exporters"): (),
    ("GET", "/v1/metadata/id"): (),
    ("GET", "/v1/metadata/version"): (),
    ("GET", "/openapi.json"): (),
    ("GET", "/docs"): (),
}
"""The routes that exist once."""

NEEDED: Mapping[tuple[str, str], tuple[Right, ...]] = {**EVERYWHERE, **OUTSIDE}
