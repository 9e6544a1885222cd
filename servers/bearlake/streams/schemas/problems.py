"""Errors of the registry: kinds of `bearlake.errors`, each with the error code that registry clients know.

Source of the numbers: Confluent, "Schema Registry API Reference", section of errors per call.
"""

from collections.abc import Sequence

from bearlake.errors import BearlakeError, Conflict, Invalid, NotFound


class Refusal(BearlakeError):
    """Base class; `code` is Confluent's error code, whose first three digits are the HTTP status."""

    code = 50001


class SubjectNotFound(Refusal, NotFound):
    """No such subject."""

    code = 40401


class VersionNotFound(Refusal, NotFound):
    """The subject has no such version."""

    code = 40402


class SchemaNotFound(Refusal, NotFound):
    """No such schema in this context, or under this subject."""

    code = 40403


class SubjectSoftDeleted(Refusal, NotFound):
    """The subject is already soft-deleted."""

    code = 40404


class SubjectNotSoftDeleted(Refusal, NotFound):
    """The subject must be soft-deleted before a permanent delete."""

    code = 40405


class VersionSoftDeleted(Refusal, NotFound):
    """The version is already soft-deleted."""

    code = 40406


class VersionNotSoftDeleted(Refusal, NotFound):
    """The version must be soft-deleted before a permanent delete."""

    code = 40407


class ConfigNotFound(Refusal, NotFound):
    """The subject has no config of its own."""

    code = 40408


class ModeNotFound(Refusal, NotFound):
    """The subject has no mode of its own."""

    code = 40409


class Incompatible(Refusal, Conflict):
    """The schema is incompatible with earlier versions of `subject`; `messages` say why, with details of those versions."""

    code = 409

    def __init__(self, subject: str, messages: Sequence[str]) -> None:
        details = f", details: [{', '.join(messages)}]" if messages else ""
        super().__init__(
            f'Schema being registered is incompatible with an earlier schema for subject "{subject}"{details}'
        )
        self.subject = subject
        self.messages = messages

    def without_details(self) -> "Incompatible":
        """Return the error for a caller who may not read the subject."""
        return Incompatible(self.subject, ())


class InvalidSchema(Refusal, Invalid):
    """The text is not a valid schema of its type, or a reference does not exist."""

    code = 42201


class InvalidVersion(Refusal, Invalid):
    """Not a version number."""

    code = 42202


class InvalidCompatibilityLevel(Refusal, Invalid):
    """No such compatibility level."""

    code = 42203


class InvalidMode(Refusal, Invalid):
    """No such mode."""

    code = 42204


class NotPermitted(Refusal, Invalid):
    """The mode of the subject forbids this."""

    code = 42205


class ReferenceExists(Refusal, Invalid):
    """Other schemas reference the version."""

    code = 42206


class IdDoesNotMatch(Refusal, Invalid):
    """The schema is already registered with another id."""

    code = 42207


class InvalidSubject(Refusal, Invalid):
    """Not a valid subject name."""

    code = 42208


class SchemaTooLarge(Refusal, Invalid):
    """The schema, alone or with its references, exceeds a limit."""

    code = 42209
