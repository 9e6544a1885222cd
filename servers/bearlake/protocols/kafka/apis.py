"""The APIs that this server answers: version ranges and handlers. What is not here is not advertised.

Ranges are those of current brokers (Apache Kafka 4.x). Produce is advertised from 0 although 0-2 are refused: without that
librdkafka silently drops compression (KAFKA-18659). Transactions, KIP-848, share groups and ACLs are absent until they work.
"""

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, NamedTuple

from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.context import Caller, KafkaContext

# Any: request and response classes depend on the API (see codec.Codec.decode).
Handler = Callable[[KafkaContext, Caller, Any], Awaitable[Any]]


class Api(NamedTuple):
    """One API: key, advertised versions, and where its handler is (`module:function` in `handlers/`)."""

    key: ApiKey
    version_min: int
    version_max: int
    place: str


APIS: tuple[Api, ...] = (
    Api(ApiKey.PRODUCE, 0, 13, "produce:handle"),
    Api(ApiKey.FETCH, 4, 18, "fetch:handle"),
    Api(ApiKey.LIST_OFFSETS, 1, 11, "list_offsets:handle"),
    Api(ApiKey.METADATA, 0, 13, "metadata:handle"),
    Api(ApiKey.OFFSET_COMMIT, 2, 10, "group_offsets:commit"),
    Api(ApiKey.OFFSET_FETCH, 1, 10, "group_offsets:fetch"),
    Api(ApiKey.FIND_COORDINATOR, 0, 6, "group_membership:find_coordinator"),
    Api(ApiKey.JOIN_GROUP, 0, 9, "group_membership:join"),
    Api(ApiKey.HEARTBEAT, 0, 4, "group_membership:heartbeat"),
    Api(ApiKey.LEAVE_GROUP, 0, 5, "group_membership:leave"),
    Api(ApiKey.SYNC_GROUP, 0, 5, "group_membership:sync"),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 6, "group_admin:describe"),
    Api(ApiKey.LIST_GROUPS, 0, 5, "group_admin:list_groups"),
    Api(ApiKey.API_VERSIONS, 0, 4, "api_versions:handle"),
    Api(ApiKey.CREATE_TOPICS, 2, 7, "topics:create"),
    Api(ApiKey.DELETE_TOPICS, 1, 6, "topics:delete"),
    Api(ApiKey.DELETE_RECORDS, 0, 2, "topics:delete_records"),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 5, "producers:init"),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, "list_offsets:for_leader_epoch"),
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, "configs:describe"),
    Api(ApiKey.ALTER_CONFIGS, 0, 2, "configs:alter"),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 4, "topics:describe_log_dirs"),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3, "topics:create_partitions"),
    Api(ApiKey.DELETE_GROUPS, 0, 2, "group_admin:delete"),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, "configs:incremental_alter"),
    Api(ApiKey.OFFSET_DELETE, 0, 0, "group_offsets:delete"),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, "metadata:describe_cluster"),
    Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, "producers:describe"),
    Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, "configs:list_resources"),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, "metadata:describe_topic_partitions"),
)

BY_KEY: dict[int, Api] = {api.key: api for api in APIS}


def handlers() -> dict[int, Handler]:
    """The handler of every advertised API; imports their modules."""
    found: dict[int, Handler] = {}
    for api in APIS:
        module, function = api.place.split(":")
        found[api.key] = getattr(import_module(f"bearlake.protocols.kafka.handlers.{module}"), function)
    return found
