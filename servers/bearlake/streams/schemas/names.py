"""Syntax of subjects, contexts and versions.

A subject outside the default context is written `:.context:name`; `:.context:` names a whole context, `:*:` all contexts.
Source: Confluent, "Schema Contexts".
"""

from bearlake.metadata.schemas import DEFAULT_CONTEXT, GLOBAL_SUBJECT, SubjectKey
from bearlake.streams.schemas.problems import InvalidSubject, InvalidVersion

SUBJECT_BYTES_MAX = 1024
"""Most bytes (UTF-8) of a subject with its context. A key of an index in PostgreSQL has at most 2,704 bytes, and may hold two contexts."""

VERSION_MAX = 2**31 - 1
LATEST = -1
"""The version that `latest` means."""

GLOBAL_NAMES = ("__GLOBAL", "__EMPTY")
ALL_CONTEXTS = ":*:"
GLOBAL = SubjectKey(DEFAULT_CONTEXT, GLOBAL_SUBJECT)
"""Key of the registry's own config and mode."""


def split(text: str) -> SubjectKey:
    """Parse `:.context:name` or `name`; the name may be empty (see `GLOBAL_SUBJECT`). Raises `InvalidSubject`."""
    _check(text)
    if not text.startswith(":."):
        return SubjectKey(DEFAULT_CONTEXT, text)
    context, colon, name = text[1:].partition(":")
    if not colon:
        raise InvalidSubject(f"The specified subject {text!r} is not a valid subject: expected :.context:name")
    if context == DEFAULT_CONTEXT and name.startswith(":."):
        # `shown` would write it as a subject of another context, and access rules of that context would match it.
        raise InvalidSubject(f"The specified subject {text!r} is not a valid subject: its name begins like a context")
    return SubjectKey(context, name)


def parse(text: str) -> SubjectKey:
    """Parse the key of a subject that can have versions. Raises `InvalidSubject`."""
    key = split(text)
    if key.name == GLOBAL_SUBJECT or key.name in GLOBAL_NAMES:
        raise InvalidSubject(f"The specified subject {text!r} is not a valid subject: it names no subject")
    return key


def within(text: str, context: str) -> SubjectKey:
    """Parse a subject relative to `context`. Raises `InvalidSubject`."""
    key = parse(text)
    return SubjectKey(context, key.name) if key.context == DEFAULT_CONTEXT and not text.startswith(":.") else key


def shown(key: SubjectKey) -> str:
    """Format the subject as clients write it."""
    return key.name if key.context == DEFAULT_CONTEXT else f":{key.context}:{key.name}"


def resource(key: SubjectKey) -> str:
    """Return the resource name for access to a subject, to a context (`:.context:`) or to the registry (`__GLOBAL`)."""
    return GLOBAL_NAMES[0] if key == GLOBAL else shown(key)


def parse_prefix(text: str) -> tuple[str | None, str]:
    """Parse the prefix of a list request into context (None: all) and name prefix. Raises `InvalidSubject`."""
    if text.startswith(ALL_CONTEXTS):
        _check(text)
        return None, text[len(ALL_CONTEXTS) :]
    return split(text)


def parse_version(text: str) -> int:
    """Parse a version number >= 1, or `LATEST`. Raises `InvalidVersion`."""
    if text in ("latest", "-1"):
        return LATEST
    if text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= VERSION_MAX:
        return int(text)
    raise InvalidVersion(
        f"The specified version '{text[:64]}' is not a valid version id. Allowed values are between [1, 2^31-1] and the string \"latest\""
    )


def _check(text: str) -> None:
    is_printable = all(
        character >= " " and character != "\x7f" and not "\ud800" <= character <= "\udfff" for character in text
    )
    if not is_printable or len(text.encode()) > SUBJECT_BYTES_MAX:
        raise InvalidSubject(
            f"The specified subject {text[:64]!r} is not a valid subject:"
            f" expected at most {SUBJECT_BYTES_MAX} bytes of UTF-8, without control characters"
        )
