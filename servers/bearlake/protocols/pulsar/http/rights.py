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
_SEEN_NAMESPACE, _ALTER_NAMESPACE = (
    on(Resource.NAMESPACE, operation) for operation in (Operation.DESCRIBE, Operation.ALTER)
)
_SEEN_SUBJECT, _READ_SUBJECT, _WRITE_SUBJECT, _ALTER_SUBJECT, _DELETE_SUBJECT = (
    on(Resource.SUBJECT, operation)
    for operation in (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.ALTER, Operation.DELETE)
)
_SEEN_RULES, _ALTER_RULES = (on(Resource.CLUSTER, operation) for operation in (Operation.DESCRIBE, Operation.ALTER))

_ADMIN = "/admin/v2"
_TENANT = _ADMIN + "/tenants/{tenant}"
_NAMESPACE = _ADMIN + "/namespaces/{tenant}/{namespace}"
_TOPICS = _ADMIN + "/persistent/{tenant}/{namespace}"
_TOPIC = _TOPICS + "/{topic}"
_SUBSCRIPTION = _TOPIC + "/subscription/{subscription}"
_SCHEMAS = _ADMIN + "/schemas/{tenant}/{namespace}/{topic}"
_LOOKUP = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"

NEEDED: Mapping[tuple[str, str], tuple[Right, ...]] = {
    ("GET", _LOOKUP): _DESCRIBE,
    ("GET", _LOOKUP + "/bundle"): (),  # refused
    ("GET", _ADMIN + "/clusters"): (),
    ("GET", _ADMIN + "/clusters/{cluster}"): (),
    ("GET", _ADMIN + "/brokers"): (),
    ("GET", _ADMIN + "/brokers/{cluster}"): (),
    ("GET", _ADMIN + "/brokers/health"): (),
    ("GET", _ADMIN + "/brokers/ready"): (),
    ("GET", _ADMIN + "/brokers/version"): (),
    ("GET", _ADMIN + "/brokers/configuration/runtime"): (),
    ("GET", _ADMIN + "/tenants"): _DESCRIBE,
    ("GET", _TENANT): (),  # tenants and namespaces are parts of names: nothing is read or changed
    ("PUT", _TENANT): (),
    ("DELETE", _TENANT): (),
    ("PUT", _NAMESPACE): (),
    ("DELETE", _NAMESPACE): (),
    ("GET", _ADMIN + "/namespaces/{tenant}"): _DESCRIBE,
    ("GET", _NAMESPACE + "/topics"): _DESCRIBE,
    ("GET", _NAMESPACE): _SEEN_NAMESPACE + _SEEN_SUBJECT,
    ("GET", _NAMESPACE + "/schemaCompatibilityStrategy"): _SEEN_NAMESPACE + _SEEN_SUBJECT,
    ("GET", _NAMESPACE + "/{policy}"): _SEEN_NAMESPACE,
    ("POST", _NAMESPACE + "/{policy}"): (),  # refused
    ("PUT", _NAMESPACE + "/{policy}"): (),
    ("DELETE", _NAMESPACE + "/{policy}"): (),
    ("POST", _NAMESPACE + "/retention"): _ALTER_NAMESPACE + _ALTER,
    ("DELETE", _NAMESPACE + "/retention"): _ALTER_NAMESPACE + _ALTER,
    ("POST", _NAMESPACE + "/deduplication"): _ALTER_NAMESPACE + _ALTER,
    ("DELETE", _NAMESPACE + "/deduplication"): _ALTER_NAMESPACE + _ALTER,
    ("GET", _NAMESPACE + "/permissions"): _SEEN_RULES,
    ("POST", _NAMESPACE + "/permissions/{role}"): _ALTER_RULES,
    ("DELETE", _NAMESPACE + "/permissions/{role}"): _ALTER_RULES,
    ("GET", _TOPIC + "/permissions"): _SEEN_RULES,
    ("POST", _TOPIC + "/permissions/{role}"): _ALTER_RULES,
    ("DELETE", _TOPIC + "/permissions/{role}"): _ALTER_RULES,
    ("GET", _TOPICS): _DESCRIBE,
    ("GET", _TOPICS + "/partitioned"): _DESCRIBE,
    ("GET", _ADMIN + "/non-persistent/{tenant}/{namespace}"): (),  # always empty
    ("GET", _ADMIN + "/non-persistent/{tenant}/{namespace}/partitioned"): (),
    ("PUT", _TOPIC): _CREATE,
    ("DELETE", _TOPIC): _DELETE,
    ("GET", _TOPIC + "/partitions"): _DESCRIBE,
    ("PUT", _TOPIC + "/partitions"): _CREATE,
    ("POST", _TOPIC + "/partitions"): _ALTER,
    ("DELETE", _TOPIC + "/partitions"): _DELETE,
    ("POST", _TOPIC + "/terminate"): _ALTER,
    ("POST", _TOPIC + "/terminate/partitions"): _ALTER,
    ("GET", _TOPIC + "/stats"): _DESCRIBE,
    ("GET", _TOPIC + "/internalStats"): _DESCRIBE,
    ("GET", _TOPIC + "/partitioned-stats"): _DESCRIBE,
    ("GET", _TOPIC + "/partitioned-internalStats"): _DESCRIBE,
    ("GET", _TOPIC + "/lastMessageId"): _READ,
    ("GET", _TOPIC + "/ledger/{ledger}/entry/{entry}"): _READ,
    ("GET", _TOPIC + "/subscriptions"): _DESCRIBE,
    ("PUT", _SUBSCRIPTION): _READ,
    ("DELETE", _SUBSCRIPTION): _READ,
    ("GET", _SUBSCRIPTION + "/position/{position}"): _READ,
    ("POST", _SUBSCRIPTION + "/skip/{count}"): _READ,
    ("POST", _SUBSCRIPTION + "/skip_all"): _READ,
    ("POST", _SUBSCRIPTION + "/expireMessages/{age_s}"): _READ,
    ("POST", _TOPIC + "/all_subscription/expireMessages/{age_s}"): _READ,
    ("POST", _SUBSCRIPTION + "/resetcursor"): _READ,
    ("POST", _SUBSCRIPTION + "/resetcursor/{timestamp}"): _READ,
    ("GET", _TOPIC + "/retention"): _DESCRIBE,
    ("POST", _TOPIC + "/retention"): _ALTER,
    ("DELETE", _TOPIC + "/retention"): _ALTER,
    ("GET", _TOPIC + "/deduplicationEnabled"): _DESCRIBE,
    ("POST", _TOPIC + "/deduplicationEnabled"): _ALTER,
    ("DELETE", _TOPIC + "/deduplicationEnabled"): _ALTER,
    ("GET", _TOPIC + "/schemaCompatibilityStrategy"): _DESCRIBE + _SEEN_SUBJECT,
    ("PUT", _TOPIC + "/schemaCompatibilityStrategy"): _ALTER + _ALTER_SUBJECT,
    ("DELETE", _TOPIC + "/schemaCompatibilityStrategy"): _ALTER + _SEEN_SUBJECT + _ALTER_SUBJECT,
    ("GET", _TOPIC + "/{policy}"): (),  # refused
    ("POST", _TOPIC + "/{policy}"): (),
    ("PUT", _TOPIC + "/{policy}"): (),
    ("DELETE", _TOPIC + "/{policy}"): (),
    ("GET", _SCHEMAS + "/schemas"): _DESCRIBE + _SEEN_SUBJECT + _READ_SUBJECT,
    ("GET", _SCHEMAS + "/schema"): _DESCRIBE + _READ_SUBJECT,
    ("GET", _SCHEMAS + "/schema/{version}"): _DESCRIBE + _READ_SUBJECT,
    ("POST", _SCHEMAS + "/schema"): _WRITE + _READ_SUBJECT + _WRITE_SUBJECT,
    ("DELETE", _SCHEMAS + "/schema"): _DESCRIBE + _DELETE_SUBJECT,
    ("POST", _SCHEMAS + "/compatibility"): _DESCRIBE + _SEEN_SUBJECT + _READ_SUBJECT,
    ("POST", _SCHEMAS + "/version"): _DESCRIBE + _READ_SUBJECT,
}
"""All of these rights, for the topic, its subject (`<stream>-value`) and the namespace that the request names; rights on the cluster by a
rule or as a super user only. A change of a namespace's policy needs ALTER on each topic that it changes."""
