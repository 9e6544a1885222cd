"""Translation of obstore's errors into our kinds.

obstore passes on neither HTTP status nor error code, only text such as `Server returned non-2xx status code: 412 Precondition
Failed: <?xml …><Code>…`. This module reads the distinctions from that text; an unclear text is `Unavailable`, which claims nothing.
"""

from obstore.exceptions import (
    AlreadyExistsError,
    InvalidPathError,
    NotFoundError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from bearlake.errors import AlreadyExists, BearlakeError, Denied, Invalid, NotFound, Unavailable, Unsupported

_MESSAGE_LENGTH_MAX = 300
# 404 responses that are not about the object: S3 and GCS, Azure, and S3-compatible servers that do not know the access key.
_OTHER_ABSENCES = ("NoSuchBucket", "ContainerNotFound", "XAdminUserNotFound", "InvalidAccessKeyId")


def translate(error: Exception, what: str, *, absent_is_unavailable: bool = False) -> BearlakeError:
    """Return the kind of `error` for `what` (a key or an operation); the caller raises it `from error`.

    `absent_is_unavailable`: only the bucket can be missing.
    """
    message = f"{what}: {_first_line(error)}"
    if isinstance(error, (FileNotFoundError, NotFoundError)):
        is_other = absent_is_unavailable or any(code in str(error) for code in _OTHER_ABSENCES)
        return Unavailable(message) if is_other else NotFound(f"object {what} does not exist")
    if isinstance(error, AlreadyExistsError):
        return AlreadyExists(f"object {what} exists")
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError, PermissionError)):
        return Denied(message)
    if isinstance(error, InvalidPathError):
        return Invalid(message)
    if isinstance(error, NotSupportedError):
        return Unsupported(message)
    return Unavailable(message)


def has_answer(error: Exception) -> bool:
    """Return whether the store answered the request, so that it is decided; otherwise it may still be in progress."""
    return "Server returned" in str(error)


def is_final_conflict(error: AlreadyExistsError) -> bool:
    """Return whether the store reported a failed precondition, so that the object exists; a 409 of S3 does not say that."""
    return "412 Precondition Failed" in str(error) or "304 Not Modified" in str(error)


def is_beyond_end(error: Exception) -> bool:
    """Return whether a read requested only bytes after the end."""
    return "416 Range Not Satisfiable" in str(error)


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0][:_MESSAGE_LENGTH_MAX] if lines else type(error).__name__
