"""What callers may do, in Kafka's terms: the rights that each API needs, checks that several handlers share, and masks of authorized
operations (KIP-430).

`NEEDED` is a table for readers: `docs/security.md` is generated from it, and a test compares it with what the handlers do.
"""

from collections.abc import Mapping

from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.streams.access.rights import Right, on
from bearlake.streams.principal import CLUSTER_NAME, Operation, Resource

NO_OPERATIONS = -(2**31)
"""`authorized_operations` if the request did not ask for them."""


def _bits(*operations: Operation) -> int:
    return sum(operation.bit for operation in operations)


_CHANGES = (Operation.CREATE, Operation.DELETE, Operation.ALTER)
_CONFIGS = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
TOPIC_OPERATIONS = _bits(Operation.READ, Operation.WRITE, Operation.DESCRIBE, *_CHANGES, *_CONFIGS)
GROUP_OPERATIONS = _bits(Operation.READ, Operation.DELETE, Operation.DESCRIBE, *_CONFIGS)
CLUSTER_OPERATIONS = _bits(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.IDEMPOTENT_WRITE,
    *_CONFIGS,
)


_TOPIC, _GROUP, _CLUSTER = Resource.STREAM, Resource.GROUP, Resource.CLUSTER
_TRANSACTION = Resource.TRANSACTIONAL_ID

NEEDED: Mapping[ApiKey, tuple[Right, ...]] = {
    ApiKey.PRODUCE: on(_TOPIC, Operation.WRITE),
    ApiKey.FETCH: on(_TOPIC, Operation.READ),
    ApiKey.LIST_OFFSETS: on(_TOPIC, Operation.DESCRIBE),
    ApiKey.METADATA: on(_TOPIC, Operation.DESCRIBE),
    ApiKey.OFFSET_COMMIT: on(_GROUP, Operation.READ) + on(_TOPIC, Operation.READ),
    ApiKey.OFFSET_FETCH: on(_GROUP, Operation.DESCRIBE) + on(_TOPIC, Operation.DESCRIBE),
    ApiKey.FIND_COORDINATOR: on(_GROUP, Operation.DESCRIBE),
    ApiKey.JOIN_GROUP: on(_GROUP, Operation.READ),
    ApiKey.HEARTBEAT: on(_GROUP, Operation.READ),
    ApiKey.LEAVE_GROUP: on(_GROUP, Operation.READ),
    ApiKey.SYNC_GROUP: on(_GROUP, Operation.READ),
    ApiKey.DESCRIBE_GROUPS: on(_GROUP, Operation.DESCRIBE),
    ApiKey.LIST_GROUPS: on(_GROUP, Operation.DESCRIBE),
    ApiKey.SASL_HANDSHAKE: (),
    ApiKey.API_VERSIONS: (),
    ApiKey.CREATE_TOPICS: on(_TOPIC, Operation.CREATE),
    ApiKey.DELETE_TOPICS: on(_TOPIC, Operation.DELETE),
    ApiKey.DELETE_RECORDS: on(_TOPIC, Operation.DELETE),
    ApiKey.INIT_PRODUCER_ID: on(_TOPIC, Operation.WRITE),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: on(_TOPIC, Operation.DESCRIBE),
    ApiKey.DESCRIBE_ACLS: on(_CLUSTER, Operation.DESCRIBE),
    ApiKey.CREATE_ACLS: on(_CLUSTER, Operation.ALTER),
    ApiKey.DELETE_ACLS: on(_CLUSTER, Operation.ALTER),
    ApiKey.DESCRIBE_CONFIGS: on(_TOPIC, Operation.DESCRIBE_CONFIGS)
    + on(_GROUP, Operation.DESCRIBE_CONFIGS)
    + on(_CLUSTER, Operation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CONFIGS: on(_TOPIC, Operation.ALTER_CONFIGS)
    + on(_GROUP, Operation.ALTER_CONFIGS)
    + on(_CLUSTER, Operation.ALTER_CONFIGS),
    ApiKey.DESCRIBE_LOG_DIRS: on(_CLUSTER, Operation.DESCRIBE),  # lists topics with DESCRIBE
    ApiKey.SASL_AUTHENTICATE: (),
    ApiKey.CREATE_PARTITIONS: on(_TOPIC, Operation.ALTER),
    ApiKey.DELETE_GROUPS: on(_GROUP, Operation.DELETE),
    ApiKey.ELECT_LEADERS: on(_CLUSTER, Operation.ALTER),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: on(_TOPIC, Operation.ALTER_CONFIGS)
    + on(_GROUP, Operation.ALTER_CONFIGS)
    + on(_CLUSTER, Operation.ALTER_CONFIGS),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: on(_CLUSTER, Operation.DESCRIBE),
    ApiKey.OFFSET_DELETE: on(_GROUP, Operation.DELETE) + on(_TOPIC, Operation.READ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: on(_CLUSTER, Operation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: on(_CLUSTER, Operation.ALTER_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: on(_CLUSTER, Operation.DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: on(_CLUSTER, Operation.ALTER),
    ApiKey.DESCRIBE_CLUSTER: (),
    ApiKey.DESCRIBE_PRODUCERS: on(_TOPIC, Operation.READ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: on(_GROUP, Operation.READ) + on(_TOPIC, Operation.DESCRIBE),
    ApiKey.CONSUMER_GROUP_DESCRIBE: on(_GROUP, Operation.DESCRIBE) + on(_TOPIC, Operation.DESCRIBE),
    ApiKey.LIST_CONFIG_RESOURCES: on(_CLUSTER, Operation.DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: on(_TOPIC, Operation.DESCRIBE),
    ApiKey.ADD_PARTITIONS_TO_TXN: on(_TRANSACTION, Operation.WRITE) + on(_TOPIC, Operation.WRITE),
    ApiKey.ADD_OFFSETS_TO_TXN: on(_TRANSACTION, Operation.WRITE) + on(_GROUP, Operation.READ),
    ApiKey.END_TXN: on(_TRANSACTION, Operation.WRITE),
    ApiKey.WRITE_TXN_MARKERS: on(_CLUSTER, Operation.ALTER),
    ApiKey.TXN_OFFSET_COMMIT: on(_TRANSACTION, Operation.WRITE)
    + on(_GROUP, Operation.READ)
    + on(_TOPIC, Operation.READ),
    ApiKey.DESCRIBE_TRANSACTIONS: on(_TRANSACTION, Operation.DESCRIBE),
    ApiKey.LIST_TRANSACTIONS: on(_TRANSACTION, Operation.DESCRIBE),
    ApiKey.SHARE_GROUP_HEARTBEAT: on(_GROUP, Operation.READ) + on(_TOPIC, Operation.DESCRIBE),
    ApiKey.SHARE_GROUP_DESCRIBE: on(_GROUP, Operation.DESCRIBE) + on(_TOPIC, Operation.DESCRIBE),
    ApiKey.SHARE_FETCH: on(_GROUP, Operation.READ) + on(_TOPIC, Operation.READ),
    ApiKey.SHARE_ACKNOWLEDGE: on(_GROUP, Operation.READ) + on(_TOPIC, Operation.READ),
    ApiKey.STREAMS_GROUP_HEARTBEAT: on(_GROUP, Operation.READ) + on(_TOPIC, Operation.DESCRIBE, Operation.CREATE),
    ApiKey.STREAMS_GROUP_DESCRIBE: on(_GROUP, Operation.DESCRIBE) + on(_TOPIC, Operation.DESCRIBE),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: on(_GROUP, Operation.DESCRIBE) + on(_TOPIC, Operation.DESCRIBE),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: on(_GROUP, Operation.READ) + on(_TOPIC, Operation.READ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: on(_GROUP, Operation.DELETE) + on(_TOPIC, Operation.READ),
}
"""The rights that a request needs: all of them, for the resources that it names (configs: topics, groups, or brokers of the cluster)."""


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


def on_transaction(context: KafkaContext, caller: Caller, operation: Operation, transactional_id: str) -> bool:
    """Whether the caller may do `operation` to the transactional id."""
    return context.streams.authorizer.allows(caller.who, operation, Resource.TRANSACTIONAL_ID, transactional_id)


def sees_transaction(context: KafkaContext, caller: Caller, transactional_id: str) -> bool:
    """Whether a list shows the transactional id to the caller."""
    return context.streams.authorizer.sees(caller.who, Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, transactional_id)


def sees_group(context: KafkaContext, caller: Caller, group: str) -> bool:
    """Whether a list shows the group to the caller."""
    return context.streams.authorizer.sees(caller.who, Operation.DESCRIBE, Resource.GROUP, group)


def may_take_producer_id(context: KafkaContext, caller: Caller) -> bool:
    """Whether the caller may be an idempotent producer: it may write to some topic, or a rule for the cluster says so (KIP-679)."""
    authorizer = context.streams.authorizer
    return authorizer.administers(caller.who, Operation.IDEMPOTENT_WRITE) or authorizer.allows_any(
        caller.who, Operation.WRITE, Resource.STREAM
    )
