"""Maps each API to its handler and its metrics.

Handlers that all clients need are loaded with this file. The others are loaded by family, with the first request of the family (decision
362): they and what they use were a quarter of the modules of a server.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from bearlake.late import Late
from bearlake.protocols.kafka import apis
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.handlers import api_versions, fetch, list_offsets, metadata, produce, sasl
from bearlake.streams.on_demand import GROUPS as GROUP_SERVICE
from bearlake.streams.on_demand import SUBSCRIPTIONS
from bearlake.telemetry import metrics
from bearlake.telemetry.meters import Counter, Histogram

# Any: request and response classes depend on the API (see codec.Codec.decode).
Handler = Callable[[KafkaContext, Caller, Any], Awaitable[Any]]
Handlers = Mapping[ApiKey, Handler]

HANDLERS: Handlers = {
    ApiKey.PRODUCE: produce.handle,
    ApiKey.FETCH: fetch.handle,
    ApiKey.LIST_OFFSETS: list_offsets.handle,
    ApiKey.METADATA: metadata.handle,
    ApiKey.SASL_HANDSHAKE: sasl.handshake,
    ApiKey.API_VERSIONS: api_versions.handle,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: list_offsets.for_leader_epoch,
    ApiKey.SASL_AUTHENTICATE: sasl.authenticate,
    ApiKey.DESCRIBE_CLUSTER: metadata.describe_cluster,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: metadata.describe_topic_partitions,
}
"""The handlers that are loaded at the start. With `FAMILIES`: one of every API in `apis.APIS`."""


def _groups() -> Handlers:
    from bearlake.protocols.kafka.handlers import (
        consumer_groups,
        coordinators,
        group_membership,
        group_offsets,
        transaction_offsets,
    )
    from bearlake.streams.groups.consumer import patterns  # noqa: F401 - of the context

    GROUP_SERVICE.now()
    return {
        ApiKey.TXN_OFFSET_COMMIT: transaction_offsets.commit,
        ApiKey.OFFSET_COMMIT: group_offsets.commit,
        ApiKey.OFFSET_FETCH: group_offsets.fetch,
        ApiKey.OFFSET_DELETE: group_offsets.delete,
        ApiKey.FIND_COORDINATOR: coordinators.find_coordinator,
        ApiKey.JOIN_GROUP: group_membership.join,
        ApiKey.HEARTBEAT: group_membership.heartbeat,
        ApiKey.LEAVE_GROUP: group_membership.leave,
        ApiKey.SYNC_GROUP: group_membership.sync,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_groups.heartbeat,
        ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_groups.describe,
    }


def _producers() -> Handlers:
    from bearlake.protocols.kafka.handlers import producers, transactions

    return {
        ApiKey.INIT_PRODUCER_ID: producers.init,
        ApiKey.DESCRIBE_PRODUCERS: producers.describe,
        ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions,
        ApiKey.ADD_OFFSETS_TO_TXN: transactions.add_offsets,
        ApiKey.END_TXN: transactions.end,
        ApiKey.WRITE_TXN_MARKERS: transactions.write_markers,
        ApiKey.DESCRIBE_TRANSACTIONS: transactions.describe,
    }


def _share_groups() -> Handlers:
    from bearlake.protocols.kafka.handlers import share_acknowledge, share_fetch, share_groups, share_offsets
    from bearlake.serving.shares import client  # noqa: F401 - reaches the dispatchers of other servers
    from bearlake.streams.groups import shares  # noqa: F401 - of the context

    GROUP_SERVICE.now()
    SUBSCRIPTIONS.now()
    return {
        ApiKey.SHARE_GROUP_HEARTBEAT: share_groups.heartbeat,
        ApiKey.SHARE_GROUP_DESCRIBE: share_groups.describe,
        ApiKey.SHARE_FETCH: share_fetch.fetch,
        ApiKey.SHARE_ACKNOWLEDGE: share_acknowledge.acknowledge,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: share_offsets.describe,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: share_offsets.alter,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: share_offsets.delete,
    }


def _streams_groups() -> Handlers:
    from bearlake.protocols.kafka.handlers import streams_describe, streams_groups
    from bearlake.streams.groups import streams_groups as coordinator  # noqa: F401 - of the context

    GROUP_SERVICE.now()
    return {
        ApiKey.STREAMS_GROUP_HEARTBEAT: streams_groups.heartbeat,
        ApiKey.STREAMS_GROUP_DESCRIBE: streams_describe.describe,
    }


def _administration() -> Handlers:
    from bearlake.protocols.kafka.handlers import (
        acls,
        configs,
        group_admin,
        log_dirs,
        placement,
        quotas,
        topics,
        transaction_list,
        users,
    )

    GROUP_SERVICE.now()
    return {
        ApiKey.DESCRIBE_GROUPS: group_admin.describe,
        ApiKey.LIST_GROUPS: group_admin.list_groups,
        ApiKey.DELETE_GROUPS: group_admin.delete,
        ApiKey.CREATE_TOPICS: topics.create,
        ApiKey.DELETE_TOPICS: topics.delete,
        ApiKey.DELETE_RECORDS: topics.delete_records,
        ApiKey.CREATE_PARTITIONS: topics.create_partitions,
        ApiKey.DESCRIBE_ACLS: acls.describe,
        ApiKey.CREATE_ACLS: acls.create,
        ApiKey.DELETE_ACLS: acls.delete,
        ApiKey.DESCRIBE_CONFIGS: configs.describe,
        ApiKey.ALTER_CONFIGS: configs.alter,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter,
        ApiKey.LIST_CONFIG_RESOURCES: configs.list_resources,
        ApiKey.DESCRIBE_LOG_DIRS: log_dirs.describe,
        ApiKey.ELECT_LEADERS: placement.elect_leaders,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: placement.list_reassignments,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: quotas.describe,
        ApiKey.ALTER_CLIENT_QUOTAS: quotas.alter,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: users.describe,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: users.alter,
        ApiKey.LIST_TRANSACTIONS: transaction_list.list_all,
    }


GROUPS, PRODUCERS = Late(_groups), Late(_producers)
SHARE_GROUPS, STREAMS_GROUPS = Late(_share_groups), Late(_streams_groups)
ADMINISTRATION = Late(_administration)

FAMILIES: Mapping[ApiKey, Late[Handlers]] = {
    ApiKey.OFFSET_COMMIT: GROUPS,
    ApiKey.OFFSET_FETCH: GROUPS,
    ApiKey.OFFSET_DELETE: GROUPS,
    ApiKey.FIND_COORDINATOR: GROUPS,
    ApiKey.JOIN_GROUP: GROUPS,
    ApiKey.HEARTBEAT: GROUPS,
    ApiKey.LEAVE_GROUP: GROUPS,
    ApiKey.SYNC_GROUP: GROUPS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: GROUPS,
    ApiKey.CONSUMER_GROUP_DESCRIBE: GROUPS,
    ApiKey.INIT_PRODUCER_ID: PRODUCERS,
    ApiKey.DESCRIBE_PRODUCERS: PRODUCERS,
    **{api.key: PRODUCERS for api in apis.TRANSACTIONS},
    ApiKey.TXN_OFFSET_COMMIT: GROUPS,
    ApiKey.LIST_TRANSACTIONS: ADMINISTRATION,
    **{api.key: SHARE_GROUPS for api in apis.SHARE_GROUPS},
    **{api.key: STREAMS_GROUPS for api in apis.STREAMS_GROUPS},
}
"""The family of each API that is not in `HANDLERS`; of all others it is `ADMINISTRATION`."""


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
    """All served APIs by key. The first request of a family replaces the entries of its API."""
    table: dict[int, Served] = {}
    for api in apis.APIS:
        table[api.key] = Served(
            *api,
            HANDLERS.get(api.key) or _first(api.key, table),
            metrics.KAFKA_REQUESTS.labels(api.key.name),
            metrics.KAFKA_REQUEST_SECONDS.labels(api.key.name),
            f"kafka {api.key.name}",
        )
    return table


def _first(key: ApiKey, table: dict[int, Served]) -> Handler:
    """Return a handler that loads the real one, and hands over to it."""

    async def handle(context: KafkaContext, caller: Caller, request: Any) -> Any:  # Any: see `Handler`
        found = (await family_of(key).get())[key]
        table[key] = table[key]._replace(handle=found)
        return await found(context, caller, request)

    return handle


def family_of(key: ApiKey) -> Late[Handlers]:
    """Return the family of an API that is not in `HANDLERS`."""
    return FAMILIES.get(key, ADMINISTRATION)


def disconnected(context: KafkaContext, peer: str) -> list[Coroutine[None, None, None]]:
    """End the share sessions of a connection that is closed; returns the work that releases what their members hold."""
    if not context.share_sessions:
        return []
    from bearlake.protocols.kafka.handlers import share_requests  # loaded by the session's first request

    return share_requests.disconnected(context, peer)
