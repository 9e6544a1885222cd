"""Kafka's error codes for the refusals of a group coordinator."""

from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.streams.groups.problems import GroupRefusal, Problem

CODES: dict[Problem, ErrorCode] = {
    Problem.INVALID_GROUP_ID: ErrorCode.INVALID_GROUP_ID,
    Problem.INVALID_SESSION_TIMEOUT: ErrorCode.INVALID_SESSION_TIMEOUT,
    Problem.INCONSISTENT_PROTOCOL: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    Problem.UNKNOWN_MEMBER: ErrorCode.UNKNOWN_MEMBER_ID,
    Problem.MEMBER_ID_REQUIRED: ErrorCode.MEMBER_ID_REQUIRED,
    Problem.FENCED_INSTANCE: ErrorCode.FENCED_INSTANCE_ID,
    Problem.ILLEGAL_GENERATION: ErrorCode.ILLEGAL_GENERATION,
    Problem.REBALANCE_IN_PROGRESS: ErrorCode.REBALANCE_IN_PROGRESS,
    Problem.GROUP_FULL: ErrorCode.GROUP_MAX_SIZE_REACHED,
    Problem.NON_EMPTY: ErrorCode.NON_EMPTY_GROUP,
    Problem.NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    Problem.SUBSCRIBED: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    Problem.FENCED_MEMBER_EPOCH: ErrorCode.FENCED_MEMBER_EPOCH,
    Problem.UNRELEASED_INSTANCE: ErrorCode.UNRELEASED_INSTANCE_ID,
    Problem.UNSUPPORTED_ASSIGNOR: ErrorCode.UNSUPPORTED_ASSIGNOR,
    Problem.STALE_MEMBER_EPOCH: ErrorCode.STALE_MEMBER_EPOCH,
    Problem.INVALID_PATTERN: ErrorCode.INVALID_REGULAR_EXPRESSION,
    Problem.UNSUPPORTED_VERSION: ErrorCode.UNSUPPORTED_VERSION,
    Problem.INVALID_REQUEST: ErrorCode.INVALID_REQUEST,
    Problem.INVALID_TOPOLOGY: ErrorCode.STREAMS_INVALID_TOPOLOGY,
    Problem.NOT_COORDINATOR: ErrorCode.NOT_COORDINATOR,
    Problem.COORDINATOR_UNAVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


def code_of(refusal: GroupRefusal) -> ErrorCode:
    """The code of a refusal."""
    return CODES[refusal.problem]
