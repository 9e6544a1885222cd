"""What callers may do, in Kafka's terms: checks that several handlers share, and masks of authorized operations (KIP-430)."""

from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.streams.principal import CLUSTER_NAME, Operation, Resource

NO_OPERATIONS = -(2**31)
"""`authorized_operations` if the request did not ask for them."""


def _bits(*operations: Operation) -> int:
    return sum(operation.bit for operation in operations)


_CHANGES = (Operation.CREATE, Operation.DELETE, Operation.ALTER)
_CONFIGS = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
TOPIC_OPERATIONS = _bits(Operation.READ, Operation.WRITE, Operation.DESCRIBE, *_CHANGES, *_CONFIGS)
GROUP_OPERATIONS = _bits(Operation.READ, Operation.DELETE, Operation.DESCRIBE)
CLUSTER_OPERATIONS = _bits(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.IDEMPOTENT_WRITE,
    *_CONFIGS,
)


def topic_operations(context: KafkaContext, caller: Caller, name: str) -> int:
    """Return the bits of what the caller may do to a topic."""
    return context.streams.authorizer.operations(caller.who, Resource.STREAM, name) & TOPIC_OPERATIONS


def group_operations(context: KafkaContext, caller: Caller, name: str) -> int:
    """Return the bits of what the caller may do to a group."""
    return context.streams.authorizer.operations(caller.who, Resource.GROUP, name) & GROUP_OPERATIONS


def cluster_operations(context: KafkaContext, caller: Caller) -> int:
    """Return the bits of what the caller may do to the cluster."""
    return context.streams.authorizer.operations(caller.who, Resource.CLUSTER, CLUSTER_NAME) & CLUSTER_OPERATIONS


def on_cluster(context: KafkaContext, caller: Caller, operation: Operation) -> bool:
    """Whether the caller may do `operation` to the cluster."""
    return context.streams.authorizer.allows(caller.who, operation, Resource.CLUSTER, CLUSTER_NAME)


def on_group(context: KafkaContext, caller: Caller, operation: Operation, group: str) -> bool:
    """Whether the caller may do `operation` to the group."""
    return context.streams.authorizer.allows(caller.who, operation, Resource.GROUP, group)


def may_take_producer_id(context: KafkaContext, caller: Caller) -> bool:
    """Whether the caller may be an idempotent producer: it may write to some topic, or a rule for the cluster says so (KIP-679)."""
    authorizer = context.streams.authorizer
    return authorizer.may_administer(caller.who, Operation.IDEMPOTENT_WRITE) or authorizer.allows_any(
        caller.who, Operation.WRITE, Resource.STREAM
    )
