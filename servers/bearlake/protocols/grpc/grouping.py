"""Maps refusals of group coordinators to gRPC statuses."""

import grpc

from bearlake.protocols.grpc.errors import Failure
from bearlake.streams.groups.problems import GroupRefusal, Problem

_Code = grpc.StatusCode
_CODES: dict[Problem, tuple[grpc.StatusCode, bool]] = {
    Problem.INVALID_GROUP_ID: (_Code.INVALID_ARGUMENT, False),
    Problem.INVALID_SESSION_TIMEOUT: (_Code.INVALID_ARGUMENT, False),
    Problem.INCONSISTENT_PROTOCOL: (_Code.FAILED_PRECONDITION, False),
    Problem.UNKNOWN_MEMBER: (_Code.ABORTED, False),
    Problem.MEMBER_ID_REQUIRED: (_Code.ABORTED, True),
    Problem.FENCED_INSTANCE: (_Code.ABORTED, False),
    Problem.ILLEGAL_GENERATION: (_Code.ABORTED, False),
    Problem.REBALANCE_IN_PROGRESS: (_Code.ABORTED, True),
    Problem.GROUP_FULL: (_Code.RESOURCE_EXHAUSTED, False),
    Problem.NON_EMPTY: (_Code.FAILED_PRECONDITION, False),
    Problem.NOT_FOUND: (_Code.NOT_FOUND, False),
    Problem.SUBSCRIBED: (_Code.FAILED_PRECONDITION, False),
    Problem.FENCED_MEMBER_EPOCH: (_Code.ABORTED, False),
    Problem.UNRELEASED_INSTANCE: (_Code.ABORTED, True),
    Problem.UNSUPPORTED_ASSIGNOR: (_Code.INVALID_ARGUMENT, False),
    Problem.STALE_MEMBER_EPOCH: (_Code.ABORTED, True),
    Problem.INVALID_PATTERN: (_Code.INVALID_ARGUMENT, False),
    Problem.UNSUPPORTED_VERSION: (_Code.UNIMPLEMENTED, False),
    Problem.INVALID_REQUEST: (_Code.INVALID_ARGUMENT, False),
    Problem.INVALID_TOPOLOGY: (_Code.INVALID_ARGUMENT, False),
    Problem.NOT_COORDINATOR: (_Code.UNAVAILABLE, True),
    Problem.COORDINATOR_UNAVAILABLE: (_Code.UNAVAILABLE, True),
}
assert set(_CODES) == set(Problem)


def failure_of_refusal(refusal: GroupRefusal) -> Failure:
    """Return the status for a refusal; the reason is the problem's name."""
    code, is_retriable = _CODES[refusal.problem]
    return Failure(code, refusal.problem.name, str(refusal), is_retriable=is_retriable)
