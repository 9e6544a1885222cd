"""The rights that each route needs. A table for readers: documentation is generated from it, and a test compares it with the routes."""

from collections.abc import Mapping

from bearlake.streams.access.rights import Right, on
from bearlake.streams.principal import Operation, Resource

_CREATE, _DELETE, _DESCRIBE, _READ, _WRITE, _ALTER = (
    on(Resource.STREAM, operation)
    for operation in (
        Operation.CREATE,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.READ,
        Operation.WRITE,
        Operation.ALTER,
    )
)
_CONFIGS = on(Resource.STREAM, Operation.ALTER_CONFIGS)
_GROUP = on(Resource.GROUP, Operation.READ)
_SEEN_GROUP = on(Resource.GROUP, Operation.DESCRIBE)
_INSTANCE = "/consumers/{group}/instances/{instance}"
_CLUSTER = "/v3/clusters/{cluster_id}"
_TOPIC = _CLUSTER + "/topics/{topic}"
_CONFIG = _TOPIC + "/configs/{config}"
_GROUPS = _CLUSTER + "/consumer-groups"

NEEDED: Mapping[tuple[str, str], tuple[Right, ...]] = {
    ("GET", "/docs"): (),
    ("GET", "/openapi.json"): (),
    ("GET", "/brokers"): (),
    ("GET", "/topics"): _DESCRIBE,
    ("GET", "/topics/{topic}"): _DESCRIBE,
    ("GET", "/topics/{topic}/partitions"): _DESCRIBE,
    ("GET", "/topics/{topic}/partitions/{partition}"): _DESCRIBE,
    ("GET", "/topics/{topic}/partitions/{partition}/offsets"): _DESCRIBE,
    ("POST", "/topics/{topic}"): _WRITE,
    ("POST", "/topics/{topic}/partitions/{partition}"): _WRITE,
    ("POST", "/consumers/{group}"): _GROUP,
    ("HEAD", _INSTANCE): _GROUP,
    ("DELETE", _INSTANCE): _GROUP,
    ("GET", _INSTANCE + "/subscription"): _GROUP,
    ("POST", _INSTANCE + "/subscription"): _GROUP + _READ,
    ("DELETE", _INSTANCE + "/subscription"): _GROUP,
    ("GET", _INSTANCE + "/assignments"): _GROUP,
    ("POST", _INSTANCE + "/assignments"): _GROUP + _READ,
    ("GET", _INSTANCE + "/records"): _GROUP + _READ,
    ("GET", _INSTANCE + "/offsets"): _GROUP + _DESCRIBE,
    ("POST", _INSTANCE + "/offsets"): _GROUP + _READ,
    ("POST", _INSTANCE + "/positions"): _GROUP,
    ("POST", _INSTANCE + "/positions/beginning"): _GROUP,
    ("POST", _INSTANCE + "/positions/end"): _GROUP,
    ("PUT", "/v1/stream/{name}"): _CREATE,
    ("DELETE", "/v1/stream/{name}"): _DELETE,
    ("POST", "/v1/stream/{name}"): _WRITE,
    ("POST", "/v1/stream/{name}/{partition}"): _WRITE,
    ("GET", "/v1/stream/{name}"): _READ,
    ("GET", "/v1/stream/{name}/{partition}"): _READ,
    ("HEAD", "/v1/stream/{name}"): _DESCRIBE + _READ,
    ("HEAD", "/v1/stream/{name}/{partition}"): _DESCRIBE + _READ,
    ("GET", "/v3/clusters"): (),
    ("GET", _CLUSTER): (),
    ("GET", _CLUSTER + "/brokers"): (),
    ("GET", _CLUSTER + "/brokers/{broker}"): (),
    ("GET", _CLUSTER + "/topics"): _DESCRIBE,
    ("POST", _CLUSTER + "/topics"): _CREATE,
    ("GET", _TOPIC): _DESCRIBE,
    ("PATCH", _TOPIC): _DESCRIBE + _ALTER,
    ("DELETE", _TOPIC): _DESCRIBE + _DELETE,
    ("GET", _TOPIC + "/partitions"): _DESCRIBE,
    ("GET", _TOPIC + "/partitions/{partition}"): _DESCRIBE,
    ("GET", _TOPIC + "/configs"): _DESCRIBE,
    ("POST", _TOPIC + "/configs:alter"): _DESCRIBE + _CONFIGS,
    ("GET", _CONFIG): _DESCRIBE,
    ("PUT", _CONFIG): _DESCRIBE + _CONFIGS,
    ("DELETE", _CONFIG): _DESCRIBE + _CONFIGS,
    ("POST", _TOPIC + "/records"): _WRITE,
    ("GET", _GROUPS): _SEEN_GROUP,
    ("GET", _GROUPS + "/{group}"): _SEEN_GROUP,
    ("GET", _GROUPS + "/{group}/consumers"): _SEEN_GROUP,
    ("GET", _GROUPS + "/{group}/lag-summary"): _SEEN_GROUP + _DESCRIBE,
    ("GET", _GROUPS + "/{group}/lags"): _SEEN_GROUP + _DESCRIBE,
    ("GET", _GROUPS + "/{group}/lags/{topic}/partitions/{partition}"): _SEEN_GROUP + _DESCRIBE,
}
"""All of these rights, for the topics and the group that the request names. ALTER serves as ALTER_CONFIGS too."""
