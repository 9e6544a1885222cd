"""obstore's errors in our kinds.

obstore passes on neither HTTP status nor error code, only text such as `Server returned non-2xx status code: 412 Precondition
Failed: <?xml …><Code>…`. What must be told apart is read from there; what the text does not say is `Unavailable`, which claims nothing.
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
# 404 that do not speak of the object: S3 and GCS, Azure, and S3-compatible servers that do not know the access key.
_OTHER_ABSENCES = ("NoSuchBucket", "ContainerNotFound", "XAdminUserNotFound", "InvalidAccessKeyId")


def translate(error: Exception, what: str, *, absent_is_unavailable: bool = False) -> BearlakeError:
    """The kind that `error` means for `what` (a key or an operation); the caller raises it `from error`.

    `absent_is_unavailable`: nothing can be missing but the bucket.
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
    """Whether the store answered the request, so that it is decided; else it may still be under way."""
    return "Server returned" in str(error)


def is_settled_conflict(error: AlreadyExistsError) -> bool:
    """Whether the store said that the precondition failed, so the object is there; a 409 of S3 does not say that."""
    return "412 Precondition Failed" in str(error) or "304 Not Modified" in str(error)


def is_beyond_end(error: Exception) -> bool:
    """Whether a read asked for bytes behind the end only."""
    return "416 Range Not Satisfiable" in str(error)


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0][:_MESSAGE_LENGTH_MAX] if lines else type(error).__name__
