"""Client errors, built from the gRPC status and the server's google.rpc details. Source: AIP-193.

The class says what the caller can do; `reason` identifies the exact cause (docs/grpc.md has the table).
"""

from collections.abc import Mapping

import grpc
import grpc.aio
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

_DETAILS_KEY = "grpc-status-details-bin"
_NOT_HANDLED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
"""Codes that, without details, mean the server was not reached or had just stopped accepting calls."""
_BROKEN = "Internal error from Core"
"""Message of grpc.aio itself, with code INTERNAL, when the connection breaks while a message is being sent."""

UNKNOWN_PRODUCER = "UNKNOWN_PRODUCER"
"""Reason of a refusal: the servers have forgotten the producer and stored nothing. The producer continues in a new epoch."""


class CallFailed(Exception):
    """A call failed; retries did not or cannot help.

    `code` is the gRPC status name (`NOT_FOUND`), `reason` the server's reason (`OUT_OF_ORDER`; empty if no server was reached), `metadata`
    the data of that reason, `fields` the invalid request fields, each with what was expected.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        reason: str = "",
        is_retriable: bool = False,
        retry_delay_s: float = 0.0,
        metadata: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.reason = reason
        self.is_retriable = is_retriable
        """Whether the same call may succeed later."""
        self.retry_delay_s = retry_delay_s
        """Time (s) that the server asks the client to wait before a retry (google.rpc.RetryInfo); 0: none."""
        self.metadata = dict(metadata or {})
        self.fields = dict(fields or {})


class Unavailable(CallFailed):
    """No server could serve the call within the time for retries."""


class TimedOut(CallFailed):
    """No answer arrived in time; the operation may still take effect."""


class InvalidArgument(CallFailed):
    """The request is invalid; `fields` names the invalid fields."""


class NotFound(CallFailed):
    """The stream, partition or group does not exist."""


class AlreadyExists(CallFailed):
    """A stream of this name already exists."""


class Denied(CallFailed):
    """The caller lacks permission, or is not authenticated."""


class OutOfRange(CallFailed):
    """The offset is outside the partition, for example after a trim; `metadata` has the partition's `start` and `end`."""


class Refused(CallFailed):
    """The state of the stream or group does not allow the call: an earlier batch is missing, the partition ends elsewhere, a newer
    producer or member has taken over, or the group has rebalanced."""


class Overloaded(CallFailed):
    """The call exceeds a limit of the server."""


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
    """Translate a gRPC error and its details."""
    details = dict(error.trailing_metadata() or ()).get(_DETAILS_KEY)
    status = Status.FromString(details) if isinstance(details, bytes) else Status(message=error.details() or "")
    code = grpc.StatusCode.UNAVAILABLE if details is None and error.details() == _BROKEN else error.code()
    return _of_status(status, code.name, is_retriable=details is None and code in _NOT_HANDLED)


def failure_of_status(status: Status) -> CallFailed:
    """Translate a failure that arrived inside a message."""
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
        retry_delay_s=max(0.0, retry.retry_delay.ToTimedelta().total_seconds()),
        metadata=info.metadata,
        fields={violation.field: violation.description for violation in request.field_violations},
    )
