"""What a request says: subject, version, flags, and the schema in its body. Unknown fields of a body are left alone."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from aiohttp import web

from bearlake.errors import Invalid
from bearlake.metadata.schemas import DEFAULT_CONTEXT, Deletion, VersionKey
from bearlake.protocols.rest import bodies
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.registry.answers import ACCEPTED_TYPES, TYPES
from bearlake.streams.schemas import names
from bearlake.streams.schemas.model import Draft, Reference, SchemaType
from bearlake.streams.schemas.problems import InvalidSchema, SchemaNotFound

T = TypeVar("T")

NUMBER_MAX = 2**31 - 1
_KINDS: Mapping[type, str] = {str: "text", list: "a list", dict: "an object"}


class BadRequest(Invalid):
    """The request is malformed: status 400."""


def subject_of(request: web.Request) -> str:
    """The subject of the path (empty: none), inside the context of the path if there is one."""
    return _within(request, request.match_info.get("subject", ""))


def subject_asked(request: web.Request) -> str | None:
    """The subject of the query, which names a context at least."""
    subject = request.query.get("subject")
    return _within(request, subject or "") if subject or "context" in request.match_info else None


def prefix_of(request: web.Request) -> str:
    """The prefix of the subjects that are asked for; all of all contexts when nothing is said."""
    default = "" if "context" in request.match_info else names.ALL_CONTEXTS
    return _within(request, request.query.get("subjectPrefix", default))


def version_of(request: web.Request) -> int:
    """The version of the path. Raises `InvalidVersion`."""
    return names.parse_version(request.match_info["version"])


def id_of(request: web.Request) -> int:
    """The schema id of the path. Raises `SchemaNotFound` for what is none."""
    text = request.match_info["id"]
    if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= NUMBER_MAX:
        return int(text)
    raise SchemaNotFound(f"Schema {text[:64]} not found")


def flag(request: web.Request, name: str) -> bool:
    """A boolean of the query; false when nothing is said."""
    return request.query.get(name, "").lower() == "true"


def deletion_of(request: web.Request) -> Deletion:
    """Which of live and softly deleted things are asked for."""
    if flag(request, "deletedOnly"):
        return Deletion.DELETED
    return Deletion.ALL if flag(request, "deleted") else Deletion.LIVE


def page_of(request: web.Request) -> tuple[int, int]:
    """Offset and limit of a list (-1: as many as there may be). Raises `BadRequest`."""
    return _number(request, "offset", 0), _number(request, "limit", -1)


def paged(request: web.Request, found: Sequence[T]) -> Sequence[T]:
    """The page of a list that the request asks for. Raises `BadRequest`."""
    offset, limit = page_of(request)
    return found[offset : None if limit < 0 else offset + limit]


async def document_of(request: web.Request, bytes_max: int) -> Mapping[str, Any]:
    """The JSON object in the body, of at most `bytes_max` bytes. Raises `BadRequest`, `TooLarge`, `Problem` (400, 415)."""
    if request.content_type not in ACCEPTED_TYPES:
        expected = ", ".join(TYPES)
        raise Problem(415, 415, f"HTTP 415 Unsupported Media Type: {request.content_type[:100]!r}: expected {expected}")
    document = bodies.parse(await bodies.read(request, bytes_max))
    if not isinstance(document, dict):
        raise BadRequest("the body: expected a JSON object")
    return document


async def draft_of(request: web.Request, bytes_max: int) -> Draft:
    """The schema in the body. Raises `InvalidSchema`, and what `document_of` raises."""
    document = await document_of(request, bytes_max)
    return Draft(
        type=_type(_field(document, "schemaType", str)),
        text=_field(document, "schema", str) or "",
        references=tuple(_reference(request, one) for one in _field(document, "references", list) or ()),
        metadata=_field(document, "metadata", dict),
        rule_set=_field(document, "ruleSet", dict),
        id=_positive(document, "id"),
        version=_positive(document, "version"),
    )


def _within(request: web.Request, subject: str) -> str:
    """A subject in the context of the path, unless it names one itself."""
    context = request.match_info.get("context")
    if context is None or subject.startswith((":.", names.ALL_CONTEXTS)):
        return subject
    context = context.strip(":")
    return subject if context == DEFAULT_CONTEXT else f":{'' if context.startswith('.') else '.'}{context}:{subject}"


def _type(name: str | None) -> SchemaType:
    if name is None:
        return SchemaType.AVRO
    if name.upper() not in SchemaType.__members__:
        raise InvalidSchema(
            f"Invalid schema: no such schema type: {name[:64]!r}: expected {', '.join(SchemaType.__members__)}"
        )
    return SchemaType[name.upper()]


def _reference(request: web.Request, document: Any) -> Reference:
    if not isinstance(document, dict):
        raise BadRequest("references: expected objects with name, subject and version")
    name, subject = _field(document, "name", str), _field(document, "subject", str)
    version = document.get("version")
    if name is None or subject is None or not isinstance(version, int) or isinstance(version, bool):
        raise BadRequest("references: expected name and subject as texts, and version as a number")
    if version != names.LATEST and not 1 <= version <= names.VERSION_MAX:
        raise InvalidSchema(f"Invalid schema: the reference {name!r} has no version {version}")
    context = names.split(subject_of(request)).context
    return Reference(name=name, version=VersionKey(names.within(subject, context), version))


def _field(document: Mapping[str, Any], name: str, kind: type) -> Any:
    # Any: the field's type is `kind`.
    value = document.get(name)
    if value is not None and not isinstance(value, kind):
        raise BadRequest(f"{name}: expected {_KINDS[kind]}")
    return value


def _positive(document: Mapping[str, Any], name: str) -> int | None:
    """A number from 1 on; clients write 0 or -1 for none."""
    value = document.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value > NUMBER_MAX:
        raise BadRequest(f"{name}: expected a number from 1 to {NUMBER_MAX}")
    return value if value > 0 else None


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, "")
    if not text:
        return default
    digits = text.removeprefix("-") if default < 0 else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        raise BadRequest(f"{name}: expected a whole number, not {text[:20]!r}")
    return min(int(text), NUMBER_MAX)
