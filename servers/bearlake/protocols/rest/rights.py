"""The rights that each route needs. A table for readers: documentation is generated from it, and a test compares it with the routes."""

from collections.abc import Mapping

from bearlake.streams.access.rights import (
    ALTER_STREAM,
    CREATE_STREAM,
    DELETE_STREAM,
    DESCRIBE_STREAM,
    READ_STREAM,
    WRITE_STREAM,
    Right,
    on,
)
from bearlake.streams.principal import Operation, Resource

_ALTER_CONFIGS = on(Resource.STREAM, Operation.ALTER_CONFIGS)
_READ_GROUP = on(Resource.GROUP, Operation.READ)
_DELETE_GROUP = on(Resource.GROUP, Operation.DELETE)
_DESCRIBE_GROUP = on(Resource.GROUP, Operation.DESCRIBE)
_INSTANCE = "/consumers/{group}/instances/{instance}"
_CLUSTER = "/v3/clusters/{cluster_id}"
_TOPIC = _CLUSTER + "/topics/{topic}"
_CONFIG = _TOPIC + "/configs/{config}"
_GROUPS = _CLUSTER + "/consumer-groups"
_SHARE_GROUPS = _CLUSTER + "/share-groups"

NEEDED: Mapping[tuple[str, str], tuple[Right, ...]] = {
    ("GET", "/docs"): (),
    ("GET", "/openapi.json"): (),
    ("GET", "/brokers"): (),
    ("GET", "/topics"): DESCRIBE_STREAM,
    ("GET", "/topics/{topic}"): DESCRIBE_STREAM,
    ("GET", "/topics/{topic}/partitions"): DESCRIBE_STREAM,
    ("GET", "/topics/{topic}/partitions/{partition}"): DESCRIBE_STREAM,
    ("GET", "/topics/{topic}/partitions/{partition}/offsets"): DESCRIBE_STREAM,
    ("POST", "/topics/{topic}"): WRITE_STREAM,
    ("POST", "/topics/{topic}/partitions/{partition}"): WRITE_STREAM,
    ("POST", "/consumers/{group}"): _READ_GROUP,
    ("HEAD", _INSTANCE): _READ_GROUP,
    ("DELETE", _INSTANCE): _READ_GROUP,
    ("GET", _INSTANCE + "/subscription"): _READ_GROUP,
    ("POST", _INSTANCE + "/subscription"): _READ_GROUP + READ_STREAM,
    ("DELETE", _INSTANCE + "/subscription"): _READ_GROUP,
    ("GET", _INSTANCE + "/assignments"): _READ_GROUP,
    ("POST", _INSTANCE + "/assignments"): _READ_GROUP + READ_STREAM,
    ("GET", _INSTANCE + "/records"): _READ_GROUP + READ_STREAM,
    ("GET", _INSTANCE + "/offsets"): _READ_GROUP + DESCRIBE_STREAM,
    ("POST", _INSTANCE + "/offsets"): _READ_GROUP + READ_STREAM,
    ("POST", _INSTANCE + "/positions"): _READ_GROUP,
    ("POST", _INSTANCE + "/positions/beginning"): _READ_GROUP,
    ("POST", _INSTANCE + "/positions/end"): _READ_GROUP,
    ("PUT", "/v1/stream/{name}"): CREATE_STREAM,
    ("DELETE", "/v1/stream/{name}"): DELETE_STREAM,
    ("POST", "/v1/stream/{name}"): WRITE_STREAM,
    ("POST", "/v1/stream/{name}/{partition}"): WRITE_STREAM,
    ("GET", "/v1/stream/{name}"): READ_STREAM,
    ("GET", "/v1/stream/{name}/{partition}"): READ_STREAM,
    ("HEAD", "/v1/stream/{name}"): DESCRIBE_STREAM + READ_STREAM,
    ("HEAD", "/v1/stream/{name}/{partition}"): DESCRIBE_STREAM + READ_STREAM,
    ("GET", "/v3/clusters"): (),
    ("GET", _CLUSTER): (),
    ("GET", _CLUSTER + "/brokers"): (),
    ("GET", _CLUSTER + "/brokers/{broker}"): (),
    ("GET", _CLUSTER + "/topics"): DESCRIBE_STREAM,
    ("POST", _CLUSTER + "/topics"): CREATE_STREAM,
    ("GET", _TOPIC): DESCRIBE_STREAM,
    ("PATCH", _TOPIC): DESCRIBE_STREAM + ALTER_STREAM,
    ("DELETE", _TOPIC): DESCRIBE_STREAM + DELETE_STREAM,
    ("GET", _TOPIC + "/partitions"): DESCRIBE_STREAM,
    ("GET", _TOPIC + "/partitions/{partition}"): DESCRIBE_STREAM,
    ("GET", _TOPIC + "/configs"): DESCRIBE_STREAM,
    ("POST", _TOPIC + "/configs:alter"): DESCRIBE_STREAM + _ALTER_CONFIGS,
    ("GET", _CONFIG): DESCRIBE_STREAM,
    ("PUT", _CONFIG): DESCRIBE_STREAM + _ALTER_CONFIGS,
    ("DELETE", _CONFIG): DESCRIBE_STREAM + _ALTER_CONFIGS,
    ("POST", _TOPIC + "/records"): WRITE_STREAM,
    ("POST", _TOPIC + "/records:read"): READ_STREAM,
    ("GET", _GROUPS): _DESCRIBE_GROUP,
    ("GET", _GROUPS + "/{group}"): _DESCRIBE_GROUP,
    ("DELETE", _GROUPS + "/{group}"): _DELETE_GROUP,
    ("GET", _GROUPS + "/{group}/consumers"): _DESCRIBE_GROUP,
    ("GET", _GROUPS + "/{group}/lag-summary"): _DESCRIBE_GROUP + DESCRIBE_STREAM,
    ("GET", _GROUPS + "/{group}/lags"): _DESCRIBE_GROUP + DESCRIBE_STREAM,
    ("POST", _GROUPS + "/{group}/offsets:reset"): _READ_GROUP + READ_STREAM,
    ("GET", _GROUPS + "/{group}/lags/{topic}/partitions/{partition}"): _DESCRIBE_GROUP + DESCRIBE_STREAM,
    ("GET", _SHARE_GROUPS): _DESCRIBE_GROUP,
    ("GET", _SHARE_GROUPS + "/{group}"): _DESCRIBE_GROUP,
    ("DELETE", _SHARE_GROUPS + "/{group}"): _DELETE_GROUP,
    ("GET", _SHARE_GROUPS + "/{group}/consumers"): _DESCRIBE_GROUP,
    ("GET", _SHARE_GROUPS + "/{group}/lags"): _DESCRIBE_GROUP + DESCRIBE_STREAM,
    ("GET", _CLUSTER + "/subscriptions"): DESCRIBE_STREAM,
    ("GET", _TOPIC + "/subscriptions/{subscription}/lags"): DESCRIBE_STREAM,
    ("POST", _SHARE_GROUPS + "/{group}/offsets:reset"): _READ_GROUP + READ_STREAM,
    ("POST", _TOPIC + "/subscriptions/{subscription}/offsets:reset"): READ_STREAM,
}
"""All of these rights, for the topics and the group that the request names. ALTER serves as ALTER_CONFIGS too."""
