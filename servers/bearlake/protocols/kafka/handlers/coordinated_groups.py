"""What the requests of consumer groups (KIP-848) and of share groups (KIP-932) have in common: checks of heartbeats, and descriptions."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn, TypeVar

from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers.group_codes import code_of
from bearlake.protocols.kafka.handlers.group_membership import may_describe
from bearlake.protocols.kafka.messages import ConsumerGroupDescribeResponse, ShareGroupDescribeResponse
from bearlake.protocols.kafka.rights import NO_OPERATIONS, group_operations
from bearlake.streams.groups.consumer.model import ConsumerGroup
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.principal import Operation
from bearlake.streams.turns import in_turns

G = TypeVar("G", bound=ConsumerGroup)
Description = ConsumerGroupDescribeResponse.Group | ShareGroupDescribeResponse.Group


class Refused(Exception):
    """The request is refused before anything is done."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def invalid(message: str) -> NoReturn:
    """Raise `Refused`: the request is malformed."""
    raise Refused(ErrorCode.INVALID_REQUEST, message)


async def check_topics(context: KafkaContext, caller: Caller, names: Sequence[str] | None) -> None:
    """Raise `Refused` unless the caller may describe all topics that a member subscribes to."""
    async for part in in_turns(names or ()):
        for name in part:
            if not context.streams.may(caller.who, Operation.DESCRIBE, name):
                raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


async def describe_into(
    answer: Description,
    context: KafkaContext,
    caller: Caller,
    ask: Callable[[str], Awaitable[G]],
    *,
    with_operations: bool,
) -> G | None:
    """Fill in the group named by `answer.group_id`, except its members; `ask` returns the group, or raises `GroupRefusal`.

    Returns the group, whose members the caller adds; None if the answer is an error.
    """
    name = answer.group_id
    answer.authorized_operations = group_operations(context, caller, name) if with_operations else NO_OPERATIONS
    if not may_describe(context, caller, name):
        answer.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return None
    try:
        group = await ask(name)
    except GroupRefusal as refusal:
        answer.error_code, answer.error_message = code_of(refusal), str(refusal)
        return None
    if not all(context.streams.sees(caller.who, Operation.DESCRIBE, topic) for topic in group.topics):
        answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        answer.error_message = "The group has described topic(s) that the client is not authorized to describe."
        return None
    answer.group_state = group.state.value
    answer.group_epoch, answer.assignment_epoch = group.epoch, group.assignment_epoch
    answer.assignor_name = group.assignor
    return group
