"""What the registry's routes take and answer with, for its OpenAPI document; each is there once more inside a context."""

from collections.abc import Mapping

from bearlake.protocols.rest.problems import Error
from bearlake.protocols.rest.registry import models
from bearlake.protocols.rest.registry.answers import TYPES
from bearlake.serving.http.models import Model, OpenModel
from bearlake.serving.http.openapi.model import FLAG, TEXT, Description, Operation, Schema, query

_PAGE = models.PAGE.parameters()
_DELETION = (query("deleted", FLAG), query("deletedOnly", FLAG))
_FORM = query("format", {"enum": ["", "serialized", "resolved"]})
_NORMAL, _WITH_DELETED, _FOR_GOOD = (query(name, FLAG) for name in ("normalize", "deleted", "permanent"))
_IN_SCOPE, _SUBJECT, _PREFIX = query("defaultToGlobal", FLAG), query("subject", TEXT), query("subjectPrefix", TEXT)

_LOOK = (400, 403, 404, 422, 429, 500, 503)
_WRITE = (400, 403, 404, 409, 413, 415, 422, 429, 500, 503)


def _look(*parameters: Schema) -> Operation:
    return Operation((200,), _LOOK, TYPES, parameters=parameters)


def _write(body: type[OpenModel] | type[Model], *parameters: Schema) -> Operation:
    return Operation((200,), _WRITE, TYPES, dict.fromkeys(TYPES, body), parameters=parameters)


_ID, _GUID = "/schemas/ids/{id}", "/schemas/guids/{guid}"
_OF_SUBJECT, _VERSIONS = "/subjects/{subject}", "/subjects/{subject}/versions"
_VERSION = _VERSIONS + "/{version}"
_CHECKS = "/compatibility/subjects/{subject}/versions"

_EVERYWHERE: Mapping[tuple[str, str], Operation] = {
    ("GET", "/schemas"): _look(_PREFIX, *_DELETION, query("latestOnly", FLAG), *_PAGE),
    ("GET", "/schemas/types"): _look(),
    ("GET", _ID): _look(_SUBJECT, _FORM, query("fetchMaxId", FLAG)),
    ("GET", f"{_ID}/schema"): _look(_SUBJECT, _FORM),
    ("GET", f"{_ID}/subjects"): _look(_SUBJECT, *_DELETION, *_PAGE),
    ("GET", f"{_ID}/versions"): _look(_SUBJECT, *_DELETION, *_PAGE),
    ("GET", _GUID): _look(_FORM),
    ("GET", f"{_GUID}/ids"): _look(),
    ("GET", "/subjects"): _look(_PREFIX, *_DELETION, *_PAGE),
    ("POST", _OF_SUBJECT): _write(models.Draft, _NORMAL, _WITH_DELETED, _FORM),
    ("DELETE", _OF_SUBJECT): _look(_FOR_GOOD),
    ("GET", f"{_OF_SUBJECT}/metadata"): _look(query("key", TEXT), query("value", TEXT), _WITH_DELETED, _FORM),
    ("GET", _VERSIONS): _look(*_DELETION, *_PAGE),
    ("POST", _VERSIONS): _write(models.Draft, _NORMAL),
    ("GET", _VERSION): _look(_WITH_DELETED, _FORM),
    ("DELETE", _VERSION): _look(_FOR_GOOD),
    ("GET", f"{_VERSION}/schema"): _look(_WITH_DELETED, _FORM),
    ("GET", f"{_VERSION}/referencedby"): _look(*_PAGE),
    ("POST", _CHECKS): _write(models.Draft, _NORMAL, query("verbose", FLAG)),
    ("POST", f"{_CHECKS}/{{version}}"): _write(models.Draft, _NORMAL, query("verbose", FLAG)),
    **{("GET", path): _look(_IN_SCOPE) for path in ("/config", "/config/{subject}", "/mode", "/mode/{subject}")},
    **{("PUT", path): _write(models.Config) for path in ("/config", "/config/{subject}")},
    **{("PUT", path): _write(models.ModeBody, query("force", FLAG)) for path in ("/mode", "/mode/{subject}")},
    **{("DELETE", path): _look() for path in ("/config", "/config/{subject}", "/mode", "/mode/{subject}")},
}

OPERATIONS: Mapping[tuple[str, str], Operation] = {
    **_EVERYWHERE,
    **{(method, f"/contexts/{{context}}{path}"): operation for (method, path), operation in _EVERYWHERE.items()},
    **{("GET", path): _look() for path in ("/", "/v1/metadata/version", "/v1/metadata/id", "/exporters")},
    ("GET", "/contexts"): _look(*_PAGE),
    ("GET", "/openapi.json"): Operation((200,), (429, 503), ("application/json",)),
    ("GET", "/docs"): Operation((200,), (429, 503), ("text/html",)),
}
"""Every route."""

DESCRIPTION = Description("Bearlake schema registry", OPERATIONS, {}, TYPES, Error)
"""What the registry's OpenAPI document says beyond the docstrings of its handlers."""
