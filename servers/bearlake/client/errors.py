"""What a failed call tells its caller: the status, and the google.rpc details of the server. Source: AIP-193.

The class says what the caller can do about it; `reason` says it exactly (docs/grpc.md has the table).
"""

from collections.abc import Mapping

import grpc
import grpc.aio
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

_DETAILS_KEY = "grpc-status-details-bin"
_NOT_HANDLED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
"""Without details: not reached, or reached in the moment in which it stopped to accept calls."""
_BROKEN = "Internal error from Core"
"""What grpc.aio itself says, as INTERNAL, of a call whose connection broke while a message was being sent."""

UNKNOWN_PRODUCER = "UNKNOWN_PRODUCER"
"""Reason of a refusal: the servers have forgotten the producer, nothing was stored; it goes on in a new epoch."""


class CallFailed(Exception):
    """A call failed, for good: what could be retried was.

    `code` is gRPC's name of the status (`NOT_FOUND`), `reason` the server's (`OUT_OF_ORDER`; empty when the server was not reached),
    `metadata` what belongs to it, `fields` the wrong fields of the request with what was expected.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        reason: str = "",
        is_retriable: bool = False,
        metadata: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.reason = reason
        self.is_retriable = is_retriable
        """Whether the same call can succeed later."""
        self.metadata = dict(metadata or {})
        self.fields = dict(fields or {})


class Unavailable(CallFailed):
    """No server was reached, or none that could, within the time for retries."""


class TimedOut(CallFailed):
    """There was no answer in time; what was asked for may happen all the same."""


class InvalidArgument(CallFailed):
    """The request is wrong; `fields` says where."""


class NotFound(CallFailed):
    """There is no such stream, partition or group."""


class AlreadyExists(CallFailed):
    """There is a stream of this name."""


class Denied(CallFailed):
    """The caller may not do this, or the server does not know who calls."""


class OutOfRange(CallFailed):
    """There are no records at this offset (any more): `metadata` has the partition's `start` and `end`."""


class Refused(CallFailed):
    """The stream's or the group's state stands against it: a batch before this one is missing, the end is not where it was expected,
    a newer producer or member has taken over, the group has been divided anew."""


class Overloaded(CallFailed):
    """More than a limit of the server allows."""


_KINDS: Mapping[str, type[CallFailed]] = {
    "ABORTED": Refused,
    "ALREADY_EXISTS": AlreadyExists,
    "DEADLINE_EXCEEDED": TimedOut,
    "FAILED_PRECONDITION": Refused,
    "INVALID_ARGUMENT": InvalidArgument,
    "NOT_FOUND": NotFound,
    "OUT_OF_RANGE": OutOfRange,
    "PERMISSION_DENIED": Denied,
    "RESOURCE_EXHAUSTED": Overloaded,
    "UNAUTHENTICATED": Denied,
    "UNAVAILABLE": Unavailable,
}


def call_failed(error: grpc.aio.AioRpcError) -> CallFailed:
    """What gRPC raised, with its details unpacked."""
    details = dict(error.trailing_metadata() or ()).get(_DETAILS_KEY)
    status = Status.FromString(details) if isinstance(details, bytes) else Status(message=error.details() or "")
    code = grpc.StatusCode.UNAVAILABLE if details is None and error.details() == _BROKEN else error.code()
    return _of_status(status, code.name, is_retriable=details is None and code in _NOT_HANDLED)


def failure_of_status(status: Status) -> CallFailed:
    """A failure that came inside of a message."""
    names = {code.value[0]: code.name for code in grpc.StatusCode}
    return _of_status(status, names.get(status.code, "UNKNOWN"), is_retriable=False)


def _of_status(status: Status, code: str, *, is_retriable: bool) -> CallFailed:
    info, request, retry = ErrorInfo(), BadRequest(), RetryInfo()
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(request)
        is_retriable = detail.Unpack(retry) or is_retriable
    return _KINDS.get(code, CallFailed)(
        code,
        status.message,
        reason=info.reason,
        is_retriable=is_retriable,
        metadata=info.metadata,
        fields={violation.field: violation.description for violation in request.field_violations},
    )
