"""Maps each API to its handler and its metrics."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from bearlake.protocols.kafka import apis
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.handlers import (
    acls,
    api_versions,
    configs,
    consumer_groups,
    coordinators,
    fetch,
    group_admin,
    group_membership,
    group_offsets,
    list_offsets,
    log_dirs,
    metadata,
    placement,
    produce,
    producers,
    quotas,
    sasl,
    share_acknowledge,
    share_fetch,
    share_groups,
    share_offsets,
    streams_describe,
    streams_groups,
    topics,
    transaction_offsets,
    transactions,
    users,
)
from bearlake.telemetry import metrics
from bearlake.telemetry.meters import Counter, Histogram

# Any: request and response classes depend on the API (see codec.Codec.decode).
Handler = Callable[[KafkaContext, Caller, Any], Awaitable[Any]]

HANDLERS: Mapping[ApiKey, Handler] = {
    ApiKey.PRODUCE: produce.handle,
    ApiKey.FETCH: fetch.handle,
    ApiKey.LIST_OFFSETS: list_offsets.handle,
    ApiKey.METADATA: metadata.handle,
    ApiKey.OFFSET_COMMIT: group_offsets.commit,
    ApiKey.OFFSET_FETCH: group_offsets.fetch,
    ApiKey.FIND_COORDINATOR: coordinators.find_coordinator,
    ApiKey.JOIN_GROUP: group_membership.join,
    ApiKey.HEARTBEAT: group_membership.heartbeat,
    ApiKey.LEAVE_GROUP: group_membership.leave,
    ApiKey.SYNC_GROUP: group_membership.sync,
    ApiKey.DESCRIBE_GROUPS: group_admin.describe,
    ApiKey.LIST_GROUPS: group_admin.list_groups,
    ApiKey.SASL_HANDSHAKE: sasl.handshake,
    ApiKey.API_VERSIONS: api_versions.handle,
    ApiKey.CREATE_TOPICS: topics.create,
    ApiKey.DELETE_TOPICS: topics.delete,
    ApiKey.DELETE_RECORDS: topics.delete_records,
    ApiKey.INIT_PRODUCER_ID: producers.init,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: list_offsets.for_leader_epoch,
    ApiKey.DESCRIBE_ACLS: acls.describe,
    ApiKey.CREATE_ACLS: acls.create,
    ApiKey.DELETE_ACLS: acls.delete,
    ApiKey.DESCRIBE_CONFIGS: configs.describe,
    ApiKey.ALTER_CONFIGS: configs.alter,
    ApiKey.DESCRIBE_LOG_DIRS: log_dirs.describe,
    ApiKey.SASL_AUTHENTICATE: sasl.authenticate,
    ApiKey.CREATE_PARTITIONS: topics.create_partitions,
    ApiKey.DELETE_GROUPS: group_admin.delete,
    ApiKey.ELECT_LEADERS: placement.elect_leaders,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: placement.list_reassignments,
    ApiKey.OFFSET_DELETE: group_offsets.delete,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: quotas.describe,
    ApiKey.ALTER_CLIENT_QUOTAS: quotas.alter,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: users.describe,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: users.alter,
    ApiKey.DESCRIBE_CLUSTER: metadata.describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: producers.describe,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_groups.heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_groups.describe,
    ApiKey.LIST_CONFIG_RESOURCES: configs.list_resources,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: metadata.describe_topic_partitions,
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: transactions.add_offsets,
    ApiKey.END_TXN: transactions.end,
    ApiKey.WRITE_TXN_MARKERS: transactions.write_markers,
    ApiKey.TXN_OFFSET_COMMIT: transaction_offsets.commit,
    ApiKey.DESCRIBE_TRANSACTIONS: transactions.describe,
    ApiKey.LIST_TRANSACTIONS: transactions.list_all,
    ApiKey.SHARE_GROUP_HEARTBEAT: share_groups.heartbeat,
    ApiKey.SHARE_GROUP_DESCRIBE: share_groups.describe,
    ApiKey.SHARE_FETCH: share_fetch.fetch,
    ApiKey.SHARE_ACKNOWLEDGE: share_acknowledge.acknowledge,
    ApiKey.STREAMS_GROUP_HEARTBEAT: streams_groups.heartbeat,
    ApiKey.STREAMS_GROUP_DESCRIBE: streams_describe.describe,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: share_offsets.describe,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: share_offsets.alter,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: share_offsets.delete,
}
"""The handler of every API in `apis.APIS`."""


class Served(NamedTuple):
    """One API with its handler and its metrics."""

    key: ApiKey
    version_min: int
    version_max: int
    handle: Handler
    requests: Counter
    seconds: Histogram
    what: str
    """The request for the watchdog of the event loop."""


def served() -> dict[int, Served]:
    """All served APIs by key."""
    return {
        api.key: Served(
            *api,
            HANDLERS[api.key],
            metrics.KAFKA_REQUESTS.labels(api.key.name),
            metrics.KAFKA_REQUEST_SECONDS.labels(api.key.name),
            f"kafka {api.key.name}",
        )
        for api in apis.APIS
    }
