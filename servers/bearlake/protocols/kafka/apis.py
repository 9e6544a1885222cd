"""The APIs that this server supports and advertises, with their version ranges. `dispatch.py` maps them to handlers.

The ranges match current brokers (Apache Kafka 4.x). Produce is advertised from version 0 although the server rejects 0-2: otherwise
librdkafka silently drops compression (KAFKA-18659). SaslHandshake is advertised from version 0 although the server
rejects 0, whose tokens have no frames: otherwise librdkafka 2.0 and older refuse to log in.
"""

from typing import NamedTuple

from bearlake.protocols.kafka.codec import ApiKey


class Api(NamedTuple):
    """One API: key and advertised versions."""

    key: ApiKey
    version_min: int
    version_max: int


SERVES_TRANSACTIONS = True
"""Whether transactional ids are served (decision 130). If not, they are refused as by a server that knows nothing of them."""

TRANSACTIONS: tuple[Api, ...] = (
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4),
    Api(ApiKey.END_TXN, 0, 5),
    Api(ApiKey.WRITE_TXN_MARKERS, 1, 1),
    Api(ApiKey.TXN_OFFSET_COMMIT, 0, 6),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0),
    Api(ApiKey.LIST_TRANSACTIONS, 0, 2),
)

TRANSACTION_VERSION = 2
"""The finalized level of the feature transaction.version: clients then use the transactions of KIP-890."""

SERVES_SHARE_GROUPS = True
"""Whether share groups are served (decision 185). If not, clients see a server that knows nothing of them."""

SHARE_GROUPS: tuple[Api, ...] = (
    Api(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1),
    Api(ApiKey.SHARE_GROUP_DESCRIBE, 1, 1),
    Api(ApiKey.SHARE_FETCH, 1, 2),
    Api(ApiKey.SHARE_ACKNOWLEDGE, 1, 2),
    Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1),
    Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0),
    Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0),
)

STREAMS_GROUPS: tuple[Api, ...] = (
    Api(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, 0),
    Api(ApiKey.STREAMS_GROUP_DESCRIBE, 0, 0),
)
"""Streams groups (decision 293), in the versions of Kafka 4.3."""

APIS: tuple[Api, ...] = (
    Api(ApiKey.PRODUCE, 0, 13),
    Api(ApiKey.FETCH, 4, 18),
    Api(ApiKey.LIST_OFFSETS, 1, 11),
    Api(ApiKey.METADATA, 0, 13),
    Api(ApiKey.OFFSET_COMMIT, 2, 10),
    Api(ApiKey.OFFSET_FETCH, 1, 10),
    Api(ApiKey.FIND_COORDINATOR, 0, 6),
    Api(ApiKey.JOIN_GROUP, 0, 9),
    Api(ApiKey.HEARTBEAT, 0, 4),
    Api(ApiKey.LEAVE_GROUP, 0, 5),
    Api(ApiKey.SYNC_GROUP, 0, 5),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 6),
    Api(ApiKey.LIST_GROUPS, 0, 5),
    Api(ApiKey.SASL_HANDSHAKE, 0, 1),
    Api(ApiKey.API_VERSIONS, 0, 4),
    Api(ApiKey.CREATE_TOPICS, 2, 7),
    Api(ApiKey.DELETE_TOPICS, 1, 6),
    Api(ApiKey.DELETE_RECORDS, 0, 2),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 5),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4),
    Api(ApiKey.DESCRIBE_ACLS, 1, 3),
    Api(ApiKey.CREATE_ACLS, 1, 3),
    Api(ApiKey.DELETE_ACLS, 1, 3),
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4),
    Api(ApiKey.ALTER_CONFIGS, 0, 2),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 4),
    Api(ApiKey.SASL_AUTHENTICATE, 0, 2),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3),
    Api(ApiKey.DELETE_GROUPS, 0, 2),
    Api(ApiKey.ELECT_LEADERS, 0, 2),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0),
    Api(ApiKey.OFFSET_DELETE, 0, 0),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0),
    Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2),
    Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1),
    Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0),
    *(TRANSACTIONS if SERVES_TRANSACTIONS else ()),
    *(SHARE_GROUPS if SERVES_SHARE_GROUPS else ()),
    *STREAMS_GROUPS,
)


class Feature(NamedTuple):
    """A feature that clients look for: its versions, and the one that is in use (KIP-584)."""

    name: str
    version_min: int
    version_max: int
    version: int


FEATURES: tuple[Feature, ...] = (
    Feature("group.version", 0, 1, 1),
    *((Feature("share.version", 0, 1, 1),) if SERVES_SHARE_GROUPS else ()),
    Feature("streams.version", 0, 1, 1),
    *((Feature("transaction.version", 0, TRANSACTION_VERSION, TRANSACTION_VERSION),) if SERVES_TRANSACTIONS else ()),
)
"""Version 1 of `group.version`: groups of the consumer protocol (KIP-848).

`share.version`: share groups (KIP-932). `streams.version`: streams groups (KIP-1071). `transaction.version`: see `TRANSACTION_VERSION`.
"""

FEATURES_EPOCH = 0
"""The version of the set of features: it never changes."""

BY_KEY: dict[int, Api] = {api.key: api for api in APIS}
