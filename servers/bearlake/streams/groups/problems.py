"""Errors of group requests; each protocol maps them to its own codes.

Source: Apache Kafka's group protocols, whose error codes have these names.
"""

from enum import Enum, auto


class Problem(Enum):
    """Reasons why a group coordinator refuses a request."""

    INVALID_GROUP_ID = auto()
    INVALID_SESSION_TIMEOUT = auto()
    INCONSISTENT_PROTOCOL = auto()
    UNKNOWN_MEMBER = auto()
    MEMBER_ID_REQUIRED = auto()
    FENCED_INSTANCE = auto()
    ILLEGAL_GENERATION = auto()
    REBALANCE_IN_PROGRESS = auto()
    GROUP_FULL = auto()
    NON_EMPTY = auto()
    NOT_FOUND = auto()
    SUBSCRIBED = auto()
    FENCED_MEMBER_EPOCH = auto()
    UNRELEASED_INSTANCE = auto()
    UNSUPPORTED_ASSIGNOR = auto()
    STALE_MEMBER_EPOCH = auto()
    INVALID_PATTERN = auto()
    UNSUPPORTED_VERSION = auto()
    INVALID_REQUEST = auto()
    INVALID_TOPOLOGY = auto()
    NOT_COORDINATOR = auto()
    COORDINATOR_UNAVAILABLE = auto()


class GroupRefusal(Exception):
    """The coordinator refused a group request; `member_id` is set with MEMBER_ID_REQUIRED."""

    def __init__(self, problem: Problem, message: str = "", *, member_id: str = "") -> None:
        super().__init__(message or problem.name)
        self.problem = problem
        self.member_id = member_id
