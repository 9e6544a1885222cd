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

_DESCRIBE_NAMESPACE, _ALTER_NAMESPACE = (
    on(Resource.NAMESPACE, operation) for operation in (Operation.DESCRIBE, Operation.ALTER)
)
_DESCRIBE_SUBJECT, _READ_SUBJECT, _WRITE_SUBJECT, _ALTER_SUBJECT, _DELETE_SUBJECT = (
    on(Resource.SUBJECT, operation)
    for operation in (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.ALTER, Operation.DELETE)
)
_DESCRIBE_CLUSTER, _ALTER_CLUSTER = (
    on(Resource.CLUSTER, operation) for operation in (Operation.DESCRIBE, Operation.ALTER)
)

_ADMIN = "/admin/v2"
_TENANT = _ADMIN + "/tenants/{tenant}"
_NAMESPACE = _ADMIN + "/namespaces/{tenant}/{namespace}"
_TOPICS = _ADMIN + "/persistent/{tenant}/{namespace}"
_TOPIC = _TOPICS + "/{topic}"
_SUBSCRIPTION = _TOPIC + "/subscription/{subscription}"
_SCHEMAS = _ADMIN + "/schemas/{tenant}/{namespace}/{topic}"
_LOOKUP = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"

NEEDED: Mapping[tuple[str, str], tuple[Right, ...]] = {
    ("GET", _LOOKUP): DESCRIBE_STREAM,
    ("GET", _LOOKUP + "/bundle"): (),  # refused
    ("GET", _ADMIN + "/clusters"): (),
    ("GET", _ADMIN + "/clusters/{cluster}"): (),
    ("GET", _ADMIN + "/brokers"): (),
    ("GET", _ADMIN + "/brokers/{cluster}"): (),
    ("GET", _ADMIN + "/brokers/health"): (),
    ("GET", _ADMIN + "/brokers/ready"): (),
    ("GET", _ADMIN + "/brokers/version"): (),
    ("GET", _ADMIN + "/brokers/configuration/runtime"): (),
    ("GET", _ADMIN + "/tenants"): DESCRIBE_STREAM,
    ("GET", _TENANT): (),  # tenants and namespaces are parts of names: nothing is read or changed
    ("PUT", _TENANT): (),
    ("DELETE", _TENANT): (),
    ("PUT", _NAMESPACE): (),
    ("DELETE", _NAMESPACE): (),
    ("GET", _ADMIN + "/namespaces/{tenant}"): DESCRIBE_STREAM,
    ("GET", _NAMESPACE + "/topics"): DESCRIBE_STREAM,
    ("GET", _NAMESPACE): _DESCRIBE_NAMESPACE + _DESCRIBE_SUBJECT,
    ("GET", _NAMESPACE + "/schemaCompatibilityStrategy"): _DESCRIBE_NAMESPACE + _DESCRIBE_SUBJECT,
    ("GET", _NAMESPACE + "/{policy}"): _DESCRIBE_NAMESPACE,
    ("POST", _NAMESPACE + "/{policy}"): (),  # refused
    ("PUT", _NAMESPACE + "/{policy}"): (),
    ("DELETE", _NAMESPACE + "/{policy}"): (),
    ("POST", _NAMESPACE + "/retention"): _ALTER_NAMESPACE + ALTER_STREAM,
    ("DELETE", _NAMESPACE + "/retention"): _ALTER_NAMESPACE + ALTER_STREAM,
    ("POST", _NAMESPACE + "/deduplication"): _ALTER_NAMESPACE + ALTER_STREAM,
    ("DELETE", _NAMESPACE + "/deduplication"): _ALTER_NAMESPACE + ALTER_STREAM,
    ("GET", _NAMESPACE + "/permissions"): _DESCRIBE_CLUSTER,
    ("POST", _NAMESPACE + "/permissions/{role}"): _ALTER_CLUSTER,
    ("DELETE", _NAMESPACE + "/permissions/{role}"): _ALTER_CLUSTER,
    ("GET", _TOPIC + "/permissions"): _DESCRIBE_CLUSTER,
    ("POST", _TOPIC + "/permissions/{role}"): _ALTER_CLUSTER,
    ("DELETE", _TOPIC + "/permissions/{role}"): _ALTER_CLUSTER,
    ("GET", _TOPICS): DESCRIBE_STREAM,
    ("GET", _TOPICS + "/partitioned"): DESCRIBE_STREAM,
    ("GET", _ADMIN + "/non-persistent/{tenant}/{namespace}"): (),  # always empty
    ("GET", _ADMIN + "/non-persistent/{tenant}/{namespace}/partitioned"): (),
    ("PUT", _TOPIC): CREATE_STREAM,
    ("DELETE", _TOPIC): DELETE_STREAM,
    ("GET", _TOPIC + "/partitions"): DESCRIBE_STREAM,
    ("PUT", _TOPIC + "/partitions"): CREATE_STREAM,
    ("POST", _TOPIC + "/partitions"): ALTER_STREAM,
    ("DELETE", _TOPIC + "/partitions"): DELETE_STREAM,
    ("POST", _TOPIC + "/terminate"): ALTER_STREAM,
    ("POST", _TOPIC + "/terminate/partitions"): ALTER_STREAM,
    ("GET", _TOPIC + "/stats"): DESCRIBE_STREAM,
    ("GET", _TOPIC + "/internalStats"): DESCRIBE_STREAM,
    ("GET", _TOPIC + "/partitioned-stats"): DESCRIBE_STREAM,
    ("GET", _TOPIC + "/partitioned-internalStats"): DESCRIBE_STREAM,
    ("GET", _TOPIC + "/lastMessageId"): READ_STREAM,
    ("GET", _TOPIC + "/ledger/{ledger}/entry/{entry}"): READ_STREAM,
    ("GET", _TOPIC + "/subscriptions"): DESCRIBE_STREAM,
    ("PUT", _SUBSCRIPTION): READ_STREAM,
    ("DELETE", _SUBSCRIPTION): READ_STREAM,
    ("GET", _SUBSCRIPTION + "/position/{position}"): READ_STREAM,
    ("POST", _SUBSCRIPTION + "/skip/{count}"): READ_STREAM,
    ("POST", _SUBSCRIPTION + "/skip_all"): READ_STREAM,
    ("POST", _SUBSCRIPTION + "/expireMessages/{age_s}"): READ_STREAM,
    ("POST", _TOPIC + "/all_subscription/expireMessages/{age_s}"): READ_STREAM,
    ("POST", _SUBSCRIPTION + "/resetcursor"): READ_STREAM,
    ("POST", _SUBSCRIPTION + "/resetcursor/{timestamp}"): READ_STREAM,
    ("GET", _TOPIC + "/retention"): DESCRIBE_STREAM,
    ("POST", _TOPIC + "/retention"): ALTER_STREAM,
    ("DELETE", _TOPIC + "/retention"): ALTER_STREAM,
    ("GET", _TOPIC + "/deduplicationEnabled"): DESCRIBE_STREAM,
    ("POST", _TOPIC + "/deduplicationEnabled"): ALTER_STREAM,
    ("DELETE", _TOPIC + "/deduplicationEnabled"): ALTER_STREAM,
    ("GET", _TOPIC + "/schemaCompatibilityStrategy"): DESCRIBE_STREAM + _DESCRIBE_SUBJECT,
    ("PUT", _TOPIC + "/schemaCompatibilityStrategy"): ALTER_STREAM + _ALTER_SUBJECT,
    ("DELETE", _TOPIC + "/schemaCompatibilityStrategy"): ALTER_STREAM + _DESCRIBE_SUBJECT + _ALTER_SUBJECT,
    ("GET", _TOPIC + "/{policy}"): (),  # refused
    ("POST", _TOPIC + "/{policy}"): (),
    ("PUT", _TOPIC + "/{policy}"): (),
    ("DELETE", _TOPIC + "/{policy}"): (),
    ("GET", _SCHEMAS + "/schemas"): DESCRIBE_STREAM + _DESCRIBE_SUBJECT + _READ_SUBJECT,
    ("GET", _SCHEMAS + "/schema"): DESCRIBE_STREAM + _READ_SUBJECT,
    ("GET", _SCHEMAS + "/schema/{version}"): DESCRIBE_STREAM + _READ_SUBJECT,
    ("POST", _SCHEMAS + "/schema"): WRITE_STREAM + _READ_SUBJECT + _WRITE_SUBJECT,
    ("DELETE", _SCHEMAS + "/schema"): DESCRIBE_STREAM + _DELETE_SUBJECT,
    ("POST", _SCHEMAS + "/compatibility"): DESCRIBE_STREAM + _DESCRIBE_SUBJECT + _READ_SUBJECT,
    ("POST", _SCHEMAS + "/version"): DESCRIBE_STREAM + _READ_SUBJECT,
}
"""All of these rights, for the topic, its subject (`<stream>-value`) and the namespace that the request names; rights on the cluster by a
rule or as a super user only. A change of a namespace's policy needs ALTER on each topic that it changes."""
