"""Reads requests: subject, version, flags, and the schema in the body. Ignores unknown fields in a body."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from aiohttp import web

from bearlake.errors import Invalid
from bearlake.metadata.schemas import DEFAULT_CONTEXT, Deletion, VersionKey
from bearlake.protocols.rest import bodies
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.registry import models
from bearlake.protocols.rest.registry.answers import ACCEPTED_TYPES, TYPES
from bearlake.protocols.rest.registry.settings import RegistrySettings
from bearlake.serving.http.models import Malformed, Mismatch, Reader, fields_given
from bearlake.streams.schemas import names, rules
from bearlake.streams.schemas.model import Draft, Mode, Reference, SchemaType
from bearlake.streams.schemas.problems import InvalidCompatibilityLevel, InvalidMode, InvalidSchema, SchemaNotFound

T = TypeVar("T")

_LEVELS = ("compatibility", rules.LEVEL)


class BadRequest(Invalid):
    """Malformed request: status 400."""


def subject_of(request: web.Request) -> str:
    """Return the path's subject (may be empty), qualified by the path's context if there is one."""
    return _within(request, request.match_info.get("subject", ""))


def subject_asked(request: web.Request) -> str | None:
    """Return the query's subject, qualified by the path's context; only the context if there is no subject; else None."""
    subject = request.query.get("subject")
    return _within(request, subject or "") if subject or "context" in request.match_info else None


def prefix_of(request: web.Request) -> str:
    """Return the query's subject prefix; by default the prefix covers all subjects of all contexts."""
    default = "" if "context" in request.match_info else names.ALL_CONTEXTS
    return _within(request, request.query.get("subjectPrefix", default))


def version_of(request: web.Request) -> int:
    """Return the path's version. Raises `InvalidVersion`."""
    return names.parse_version(request.match_info["version"])


def id_of(request: web.Request) -> int:
    """Return the path's schema id. Raises `SchemaNotFound` if it is not a valid id."""
    text = request.match_info["id"]
    if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= models.INT32_MAX:
        return int(text)
    raise SchemaNotFound(f"Schema {text[:64]} not found")


def flag(request: web.Request, name: str) -> bool:
    """Return a boolean of the query; default false."""
    return request.query.get(name, "").lower() == "true"


def deletion_of(request: web.Request) -> Deletion:
    """Return whether the request asks for live items, softly deleted items, or both."""
    if flag(request, "deletedOnly"):
        return Deletion.DELETED
    return Deletion.ALL if flag(request, "deleted") else Deletion.LIVE


def page_of(request: web.Request) -> tuple[int, int]:
    """Return offset and limit of a list (-1: no limit). Raises `BadRequest`."""
    try:
        page = models.PAGE.read(request)
    except Mismatch as error:
        raise BadRequest(str(error)) from error
    return min(page.offset, models.INT32_MAX), min(page.limit, models.INT32_MAX)


def paged(request: web.Request, found: Sequence[T]) -> Sequence[T]:
    """Return the requested page of a list. Raises `BadRequest`."""
    offset, limit = page_of(request)
    return found[offset : None if limit < 0 else offset + limit]


async def body_of(request: web.Request, reader: Reader[T], limits: RegistrySettings) -> T:
    """Parse the body. Raises `BadRequest`, `Mismatch`, `TooLarge`, `Problem` (400, 415)."""
    if request.content_type not in ACCEPTED_TYPES:
        expected = ", ".join(TYPES)
        raise Problem(415, 415, f"HTTP 415 Unsupported Media Type: {request.content_type[:100]!r}: expected {expected}")
    try:
        octets = await bodies.read(request, limits.request_bytes_max)
        return await bodies.off_the_loop(octets, limits.request_value_count_max, lambda: reader.read(octets))
    except Malformed as error:
        raise BadRequest(str(error)) from error


async def draft_of(request: web.Request, limits: RegistrySettings) -> Draft:
    """Parse the schema in the body. Raises `BadRequest`, `InvalidSchema`, `TooLarge`, `Problem` (400, 415)."""
    try:
        asked = await body_of(request, models.DRAFT, limits)
    except Mismatch as error:
        if error.place == "schemaType":
            raise InvalidSchema(f"Invalid schema: {error}") from error
        raise BadRequest(str(error)) from error
    return Draft(
        type=SchemaType.AVRO if asked.schema_type is None else SchemaType(asked.schema_type.value),
        text=asked.schema or "",
        references=tuple(_reference(request, reference) for reference in asked.references or ()),
        metadata=asked.metadata,
        rule_set=asked.rule_set,
        id=_positive(asked.id),
        version=_positive(asked.version),
    )


async def config_of(request: web.Request, limits: RegistrySettings) -> Mapping[str, Any]:
    """Parse the config in the body and return the given fields (Any: JSON).

    Raises:
        InvalidCompatibilityLevel: unknown level, or nothing to change.
        Invalid: a field is unknown or has the wrong type.
        BadRequest, TooLarge, Problem: as `body_of`.
    """
    try:
        asked = await body_of(request, models.CONFIG, limits)
    except Mismatch as error:
        if error.place in _LEVELS:
            raise InvalidCompatibilityLevel(f"Invalid compatibility level: {error}") from error
        raise _whole(error) from error
    given = fields_given(asked)
    if not given:
        raise InvalidCompatibilityLevel("Invalid compatibility level: expected a config with at least one field")
    return {rules.LEVEL if key in _LEVELS else key: value for key, value in given.items()}


async def mode_of(request: web.Request, limits: RegistrySettings) -> Mode:
    """Parse the mode in the body. Raises `InvalidMode`, `BadRequest`, `TooLarge`, `Problem` (400, 415)."""
    try:
        asked = await body_of(request, models.MODE, limits)
    except Mismatch as error:
        if error.place:
            raise InvalidMode(f"Invalid mode: {error}") from error
        raise _whole(error) from error
    return Mode(asked.mode.value)


def _whole(error: Mismatch) -> Invalid:
    """Classify a mismatch: a body that is not an object is malformed, a field with a wrong value is invalid."""
    return error if error.place else BadRequest(str(error))


def _within(request: web.Request, subject: str) -> str:
    """Qualify `subject` with the path's context, unless `subject` names a context itself."""
    context = request.match_info.get("context")
    if context is None or subject.startswith((":.", names.ALL_CONTEXTS)):
        return subject
    context = context.strip(":")
    return subject if context == DEFAULT_CONTEXT else f":{'' if context.startswith('.') else '.'}{context}:{subject}"


def _reference(request: web.Request, asked: models.Reference) -> Reference:
    if asked.version != names.LATEST and not 1 <= asked.version <= names.VERSION_MAX:
        raise InvalidSchema(f"Invalid schema: the reference {asked.name!r} has no version {asked.version}")
    context = names.split(subject_of(request)).context
    return Reference(name=asked.name, version=VersionKey(names.within(asked.subject, context), asked.version))


def _positive(number: int | None) -> int | None:
    """Return `number` if it is at least 1, else None: clients send 0 or -1 for an absent number."""
    return None if number is None or number < 1 else number
