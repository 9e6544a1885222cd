"""One table that maps error kinds to gRPC statuses with google.rpc details.

    ErrorInfo    domain "bearlake", the reason, and numbers that the client needs (start and end offset, batch index)
    RetryInfo    only if a retry can succeed: the pause before it
    BadRequest   the invalid field of the request, or the records of a batch that the stream does not accept

Source: google/rpc/error_details.proto; AIP-193.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from bearlake import errors
from bearlake.streams.append import Result, Verdict
from bearlake.streams.checking import BadRecord

DOMAIN = "bearlake"
DETAILS_KEY = "grpc-status-details-bin"
RETRY_MS = 100
_RECORDS_SHOWN_MAX = 10
"""Records that a status names: it is a header of HTTP/2, for which clients have 8 KiB."""


class BadField(errors.Invalid):
    """A request field is invalid; `field` is its path."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.expectation = message


class Failure(Exception):
    """Ends a call with this status."""

    def __init__(
        self,
        code: grpc.StatusCode,
        reason: str,
        message: str,
        *,
        is_retriable: bool = False,
        retry_ms: int = RETRY_MS,
        metadata: Mapping[str, str] | None = None,
        violations: Sequence[tuple[str, str]] = (),
    ) -> None:
        """`violations`: paths of invalid fields, and what was expected of each."""
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.is_retriable = is_retriable
        self.retry_ms = retry_ms
        self.metadata = dict(metadata or {})
        self.violations = violations

    def status(self) -> Status:
        """Return the status message with details."""
        number, _ = self.code.value
        details: list[Message] = [ErrorInfo(reason=self.reason, domain=DOMAIN, metadata=self.metadata)]
        if self.is_retriable:
            pause = Duration()
            pause.FromMilliseconds(self.retry_ms)
            details.append(RetryInfo(retry_delay=pause))
        if self.violations:
            found = [BadRequest.FieldViolation(field=path, description=text) for path, text in self.violations]
            details.append(BadRequest(field_violations=found))
        return Status(code=number, message=str(self), details=[_pack(detail) for detail in details])


class _Answer(NamedTuple):
    code: grpc.StatusCode
    reason: str
    is_retriable: bool = False


_Code = grpc.StatusCode
_BY_KIND: tuple[tuple[type[errors.BearlakeError], _Answer], ...] = (
    (BadRecord, _Answer(_Code.INVALID_ARGUMENT, "INVALID_RECORD")),
    (errors.TooLarge, _Answer(_Code.INVALID_ARGUMENT, "TOO_LARGE")),
    (errors.Corrupt, _Answer(_Code.INVALID_ARGUMENT, "CORRUPT")),
    (errors.Unsupported, _Answer(_Code.UNIMPLEMENTED, "UNSUPPORTED")),
    (errors.Invalid, _Answer(_Code.INVALID_ARGUMENT, "INVALID")),
    (errors.NotFound, _Answer(_Code.NOT_FOUND, "NOT_FOUND")),
    (errors.AlreadyExists, _Answer(_Code.ALREADY_EXISTS, "ALREADY_EXISTS")),
    (errors.Conflict, _Answer(_Code.ABORTED, "CONFLICT")),
    (errors.Fenced, _Answer(_Code.UNAVAILABLE, "SERVER_FENCED", is_retriable=True)),
    (errors.OutOfOrder, _Answer(_Code.FAILED_PRECONDITION, "OUT_OF_ORDER")),
    (errors.OutOfRange, _Answer(_Code.OUT_OF_RANGE, "OUT_OF_RANGE")),
    (errors.Denied, _Answer(_Code.PERMISSION_DENIED, "DENIED")),
    (errors.Throttled, _Answer(_Code.RESOURCE_EXHAUSTED, "THROTTLED", is_retriable=True)),
    (errors.Overloaded, _Answer(_Code.RESOURCE_EXHAUSTED, "OVERLOADED", is_retriable=True)),
    (errors.Unavailable, _Answer(_Code.UNAVAILABLE, "UNAVAILABLE", is_retriable=True)),
)

_BY_VERDICT: dict[int, tuple[_Answer, str]] = {
    Verdict.OUT_OF_ORDER: (
        _Answer(_Code.FAILED_PRECONDITION, "OUT_OF_ORDER"),
        "a batch before this one is missing: send it first, with its own sequence",
    ),
    Verdict.UNKNOWN_PRODUCER: (
        _Answer(_Code.FAILED_PRECONDITION, "UNKNOWN_PRODUCER"),
        "the producer was idle for too long and has expired: send the batch in a new epoch, from sequence 0",
    ),
    Verdict.FENCED: (_Answer(_Code.ABORTED, "PRODUCER_FENCED"), "a newer epoch of this producer has written"),
    Verdict.NOT_FOUND: (_Answer(_Code.NOT_FOUND, "NOT_FOUND"), "the stream was deleted"),
    Verdict.UNEXPECTED_OFFSET: (
        _Answer(_Code.ABORTED, "UNEXPECTED_OFFSET"),
        "the partition does not end at the expected offset: another producer has written",
    ),
    Verdict.TERMINATED: (
        _Answer(_Code.FAILED_PRECONDITION, "TERMINATED"),
        "the stream is terminated and accepts no more records",
    ),
    Verdict.UNAVAILABLE: (
        _Answer(_Code.UNAVAILABLE, "OUTCOME_UNKNOWN", is_retriable=True),
        "the batch may or may not be stored: send it again with the same sequence",
    ),
    Verdict.SERVER_FENCED: (
        _Answer(_Code.UNAVAILABLE, "SERVER_FENCED", is_retriable=True),
        "this server is stopping; nothing was stored: retry at another server",
    ),
    Verdict.NOT_STORED: (
        _Answer(_Code.UNAVAILABLE, "NOT_STORED", is_retriable=True),
        "the object store did not store the batch; nothing was stored: send it again with the same sequence",
    ),
}


def failure_of(error: errors.BearlakeError) -> Failure:
    """Return the status for an error kind."""
    code, reason, is_retriable = next(answer for kind, answer in _BY_KIND if isinstance(error, kind))
    metadata = {"start": str(error.start), "end": str(error.end)} if isinstance(error, errors.OutOfRange) else {}
    retry_ms = max(RETRY_MS, math.ceil(error.wait_s * 1000)) if isinstance(error, errors.Throttled) else RETRY_MS
    return Failure(
        code,
        reason,
        str(error),
        is_retriable=is_retriable,
        retry_ms=retry_ms,
        metadata=metadata,
        violations=_violations(error),
    )


def _violations(error: errors.BearlakeError) -> Sequence[tuple[str, str]]:
    if isinstance(error, BadField):
        return [(error.field, error.expectation)]
    if isinstance(error, BadRecord):
        return [
            (f"payload.records[{index}]", reason)
            for index, reason in zip(error.indexes[:_RECORDS_SHOWN_MAX], error.reasons, strict=False)
        ]
    return ()


def failure_of_result(result: Result) -> Failure:
    """Return the status for a batch that was not stored, or whose outcome is unknown."""
    verdict, base_offset, _ = result
    (code, reason, is_retriable), message = _BY_VERDICT[verdict]
    metadata = {"end": str(base_offset)} if verdict == Verdict.UNEXPECTED_OFFSET else {}
    return Failure(code, reason, message, is_retriable=is_retriable, metadata=metadata)


def malformed() -> Failure:
    """Return the status for a message that is not Protocol Buffers, or not of the method's type."""
    return Failure(_Code.INTERNAL, "MALFORMED", "the message cannot be parsed as the method's request")


def draining() -> Failure:
    """Return the status for calls that a stopping server ends."""
    return Failure(
        _Code.UNAVAILABLE, "DRAINING", "this server is stopping: continue at another server", is_retriable=True
    )


def _pack(detail: Message) -> Any:
    packed = Any()
    packed.Pack(detail)
    return packed
