"""What can be wrong with a group request; each protocol has its own code for each.

Source: Apache Kafka's group protocol (classic): the names are those of its error codes.
"""

from enum import Enum, auto


class Problem(Enum):
    """Kinds of refusals by a group coordinator."""

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
    NOT_COORDINATOR = auto()
    COORDINATOR_UNAVAILABLE = auto()


class GroupRefusal(Exception):
    """A group request was refused; `member_id` is set with MEMBER_ID_REQUIRED."""

    def __init__(self, problem: Problem, message: str = "", *, member_id: str = "") -> None:
        super().__init__(message or problem.name)
        self.problem = problem
        self.member_id = member_id
