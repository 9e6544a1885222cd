"""The errors that callers of the client get for a call that gRPC aborted."""

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc.aio import AioRpcError, Metadata

from bearlake.client import errors


def gave_up(code: grpc.StatusCode, text: str, *details: ErrorInfo | RetryInfo) -> AioRpcError:
    status = Status(message=text)
    for detail in details:
        status.details.add().Pack(detail)
    trailing = Metadata(("grpc-status-details-bin", status.SerializeToString())) if details else Metadata()
    return AioRpcError(code, Metadata(), trailing, details=text)


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, "failed to connect", errors.Unavailable),
        (grpc.StatusCode.CANCELLED, "", errors.CallFailed),
        (grpc.StatusCode.INTERNAL, "Internal error from Core", errors.Unavailable),
    ],
)
def test_a_call_that_no_server_answered_can_be_made_again(
    code: grpc.StatusCode, text: str, kind: type[errors.CallFailed]
) -> None:
    found = errors.call_failed(gave_up(code, text))

    assert type(found) is kind
    assert found.is_retriable


def test_an_answer_is_retried_if_the_server_allows_a_retry() -> None:
    info = ErrorInfo(reason="NO_STORE")
    again = errors.call_failed(gave_up(grpc.StatusCode.INTERNAL, "Internal error from Core", info, RetryInfo()))
    final = errors.call_failed(gave_up(grpc.StatusCode.INTERNAL, "a bug", info))

    assert (again.code, again.reason, again.is_retriable) == ("INTERNAL", "NO_STORE", True)
    assert (final.code, final.reason, final.is_retriable) == ("INTERNAL", "NO_STORE", False)
