"""The policies of topics and namespaces that this server supports.

| policy | where it is stored |
|---|---|
| retention | `retention.ms` and `retention.bytes` of the stream |
| deduplication | `pulsar.deduplication` of the stream |
| schema compatibility strategy | the level of the subject `<stream>-value`, in the registry |

The retention and deduplication of a namespace apply to its topics without their own (`protocols.pulsar.namespaces`). Requests for other
policies of `pulsar-admin` are rejected with a message that names the alternative.

Retention applies to all messages, acknowledged or not; Pulsar always keeps unacknowledged messages.

Source: Pulsar, "Admin REST API", topic policies and namespaces; `RetentionPolicies` (minutes and MiB, -1: no limit).
"""

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from bearlake.protocols.pulsar.context import PulsarContext
from bearlake.protocols.pulsar.http import paths
from bearlake.protocols.pulsar.http.problems import Problem, not_served
from bearlake.protocols.pulsar.producing import DEDUPLICATION
from bearlake.protocols.pulsar.topics import Topic
from bearlake.serving.http.login import principal_of
from bearlake.streams import configs as stream_configs
from bearlake.streams.principal import Operation, Resource, require
from bearlake.streams.schemas.model import Level

RETENTION_MS = "retention.ms"
RETENTION_BYTES = "retention.bytes"
_MINUTE_MS = 60_000
_MIB = 1024 * 1024
_INT_MAX = (1 << 31) - 1
_ALWAYS = "ALWAYS_COMPATIBLE"
_REASONS = {
    "messageTTL": "unacknowledged messages stay until retention deletes them; `expire-messages` acknowledges them",
    "backlogQuota": "a backlog needs no space beyond the retained messages: set the retention",
    "backlogQuotaMap": "a backlog needs no space beyond the retained messages: set the retention",
    "persistence": "the object store replicates the messages",
    "maxMessageSize": "set `max.message.bytes` of the stream, or `pulsar.message_bytes_max` of the servers",
    "compactionThreshold": "there is no key compaction",
    "offloadPolicies": "all messages are in the object store from the beginning",
    "replication": "there is one cluster",
    "schemaCompatibilityStrategy": "set it for topics (`pulsar-admin topicPolicies`), or for all in the schema registry",
    "autoTopicCreation": "set `pulsar.auto_create_streams` and `pulsar.auto_create_partition_count` of the servers",
}
"""Why a policy is not supported, and what to do instead."""


class PolicyRoutes:
    """Routes of policies."""

    def __init__(self, context: PulsarContext) -> None:
        self._context = context

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes."""
        topic = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
        router.add_get(f"{topic}/retention", self._retention)
        router.add_post(f"{topic}/retention", self._set_retention)
        router.add_delete(f"{topic}/retention", self._unset_retention)
        router.add_get(f"{topic}/deduplicationEnabled", self._deduplication)
        router.add_post(f"{topic}/deduplicationEnabled", self._set_deduplication)
        router.add_delete(f"{topic}/deduplicationEnabled", self._unset_deduplication)
        router.add_get(f"{topic}/schemaCompatibilityStrategy", self._strategy)
        router.add_put(f"{topic}/schemaCompatibilityStrategy", self._set_strategy)
        router.add_delete(f"{topic}/schemaCompatibilityStrategy", self._unset_strategy)
        namespace = "/admin/v2/namespaces/{tenant}/{namespace}"
        router.add_get(namespace, self._namespace)
        router.add_get(f"{namespace}/schemaCompatibilityStrategy", self._namespace_strategy)
        router.add_get(f"{namespace}/{{policy}}", self._namespace_policy)
        router.add_post(f"{namespace}/retention", self._set_namespace_retention)
        router.add_delete(f"{namespace}/retention", self._unset_namespace_retention)
        router.add_post(f"{namespace}/deduplication", self._set_namespace_deduplication)
        router.add_delete(f"{namespace}/deduplication", self._unset_namespace_deduplication)
        for method in ("POST", "PUT", "DELETE"):
            router.add_route(method, f"{namespace}/{{policy}}", self._refuse)
            router.add_route(method, f"{topic}/{{policy}}", self._refuse)
        router.add_get(f"{topic}/{{policy}}", self._refuse)

    # -- retention -----------------------------------------------------------------------------------------------

    async def _retention(self, request: web.Request) -> web.Response:
        topic = await self._topic(request, Operation.DESCRIBE)
        configs = topic.view.stream.configs
        if not paths.flag(request, "applied") and RETENTION_MS not in configs and RETENTION_BYTES not in configs:
            return web.Response(status=204)
        return web.json_response(_retention_of(configs))

    async def _set_retention(self, request: web.Request) -> web.Response:
        return await self._alter(request, _retention_in(await paths.body_of(request)))

    async def _unset_retention(self, request: web.Request) -> web.Response:
        return await self._alter(request, {}, RETENTION_MS, RETENTION_BYTES)

    # -- deduplication -------------------------------------------------------------------------------------------

    async def _deduplication(self, request: web.Request) -> web.Response:
        topic = await self._topic(request, Operation.DESCRIBE)
        configs = topic.view.stream.configs
        if not paths.flag(request, "applied") and DEDUPLICATION not in configs:
            return web.Response(status=204)
        return web.json_response(_is_deduplicated(configs))

    async def _set_deduplication(self, request: web.Request) -> web.Response:
        return await self._alter(request, _deduplication_in(await paths.body_of(request)))

    async def _unset_deduplication(self, request: web.Request) -> web.Response:
        return await self._alter(request, {}, DEDUPLICATION)

    # -- schema compatibility strategy ---------------------------------------------------------------------------

    async def _strategy(self, request: web.Request) -> web.Response:
        topic, schemas = await self._topic(request, Operation.DESCRIBE), self._context.schemas
        is_applied = paths.flag(request, "applied")
        level = await (
            schemas.level(principal_of(request), topic)
            if is_applied
            else schemas.own_level(principal_of(request), topic)
        )
        return web.Response(status=204) if level is None else web.json_response(strategy_of(level))

    async def _set_strategy(self, request: web.Request) -> web.Response:
        topic, asked = await self._topic(request, Operation.ALTER), await paths.body_of(request)
        if asked in ("UNDEFINED", "ALWAYS_INCOMPATIBLE"):
            raise not_served(f"the strategy {asked}")
        try:
            level = Level.NONE if asked == _ALWAYS else Level(asked)
        except ValueError as error:
            raise Problem(400, f"expected {_ALWAYS} or one of {', '.join(level.value for level in Level)}") from error
        await self._context.schemas.set_level(principal_of(request), topic, level)
        return web.Response(status=204)

    async def _unset_strategy(self, request: web.Request) -> web.Response:
        await self._context.schemas.unset_level(principal_of(request), await self._topic(request, Operation.ALTER))
        return web.Response(status=204)

    # -- namespaces ----------------------------------------------------------------------------------------------

    async def _set_namespace_retention(self, request: web.Request) -> web.Response:
        return await self._change(request, _retention_in(await paths.body_of(request)))

    async def _unset_namespace_retention(self, request: web.Request) -> web.Response:
        return await self._change(request, {}, RETENTION_MS, RETENTION_BYTES)

    async def _set_namespace_deduplication(self, request: web.Request) -> web.Response:
        return await self._change(request, _deduplication_in(await paths.body_of(request)))

    async def _unset_namespace_deduplication(self, request: web.Request) -> web.Response:
        return await self._change(request, {}, DEDUPLICATION)

    async def _change(self, request: web.Request, configs: Mapping[str, str], *unset: str) -> web.Response:
        namespace = paths.namespace_of(request)
        await self._context.topics.namespaces.change(principal_of(request), namespace, configs, unset)
        return web.Response(status=204)

    async def _namespace(self, request: web.Request) -> web.Response:
        policies = await self._policies(request)
        answer = {
            "replication_clusters": policies["replication"],
            "retention_policies": policies["retention"],
            "deduplicationEnabled": policies["deduplication"],
            "schema_compatibility_strategy": await self._strategy_of_all(request),
            "autoTopicCreationOverride": policies["autoTopicCreation"],
            "backlog_quota_map": policies["backlogQuotaMap"],
        }
        return web.json_response(answer)

    async def _namespace_policy(self, request: web.Request) -> web.Response:
        policies = await self._policies(request)
        name = request.match_info["policy"]
        if name not in policies:
            raise not_served(f"{name} of namespaces")
        return web.json_response(policies[name])

    async def _namespace_strategy(self, request: web.Request) -> web.Response:
        self._namespace_in(request)
        return web.json_response(await self._strategy_of_all(request))

    async def _strategy_of_all(self, request: web.Request) -> str:
        """The strategy of topics without their own."""
        return strategy_of(await self._context.schemas.level(principal_of(request), None))

    async def _policies(self, request: web.Request) -> dict[str, Any]:
        """The policies of the namespace's topics without their own, by the names of the routes; all but the strategy of schemas."""
        settings = self._context.settings
        configs = await self._context.topics.namespaces.configs(self._namespace_in(request))
        creation: dict[str, Any] = {"allowAutoTopicCreation": settings.auto_create_streams}
        if settings.auto_create_partition_count:
            creation |= {"topicType": "partitioned", "defaultNumPartitions": settings.auto_create_partition_count}
        else:
            creation["topicType"] = "non-partitioned"
        return {
            "retention": _retention_of(configs),
            "deduplication": _is_deduplicated(configs),
            "autoTopicCreation": creation,
            "backlogQuotaMap": {},
            "replication": [self._context.servers.cluster_id],
        }

    def _namespace_in(self, request: web.Request) -> str:
        """The namespace in the path, whose policies the caller may see. Raises `Denied`, `Invalid`."""
        namespace = paths.namespace_of(request)
        authorizer = self._context.streams.authorizer
        require(authorizer, principal_of(request), Operation.DESCRIBE, Resource.NAMESPACE, namespace)
        return namespace

    # -- inside --------------------------------------------------------------------------------------------------

    async def _refuse(self, request: web.Request) -> web.Response:
        reason = _REASONS.get(request.match_info["policy"], "")
        raise not_served(f"{request.method} {request.path[:200]}", reason)

    async def _topic(self, request: web.Request, operation: Operation) -> Topic:
        topic = await paths.topic_of(self._context, request, operation)
        if not paths.is_whole_topic(topic):
            raise Problem(405, f"{topic.name} is a partition: policies apply to the whole topic only")
        return topic

    async def _alter(self, request: web.Request, configs: Mapping[str, str], *unset: str) -> web.Response:
        """Set and unset configs of a topic; unset configs return to the namespace's values."""
        topic = await self._topic(request, Operation.ALTER)
        if unset:
            given = await self._context.topics.namespaces.configs(topic.name.namespace)
            configs = {**configs, **{key: value for key, value in given.items() if key in unset}}
        unwanted = [key for key in unset if key not in configs]
        await self._context.streams.change(principal_of(request), topic.view.stream, lambda _: (configs, unwanted))
        return web.Response(status=204)


def strategy_of(level: Level) -> str:
    """Pulsar's name for a compatibility level."""
    return _ALWAYS if level is Level.NONE else level.value


def _retention_of(configs: Mapping[str, str]) -> dict[str, int]:
    time_ms, size = (int(stream_configs.value(configs, name)) for name in (RETENTION_MS, RETENTION_BYTES))
    return {
        "retentionTimeInMinutes": -1 if time_ms < 0 else -(-time_ms // _MINUTE_MS),
        "retentionSizeInMB": -1 if size < 0 else -(-size // _MIB),
    }


def _retention_in(asked: object) -> dict[str, str]:
    """The configs for a body with minutes and MiB. Raises `Problem` (400, 412)."""
    given = asked if isinstance(asked, dict) else {}
    minutes, size = given.get("retentionTimeInMinutes"), given.get("retentionSizeInMB")
    if not (
        isinstance(minutes, int)
        and isinstance(size, int)
        and min(minutes, size) >= -1
        and max(minutes, size) <= _INT_MAX
    ):
        raise Problem(400, "expected retentionTimeInMinutes and retentionSizeInMB, -1: no limit")
    if not minutes or not size:
        raise Problem(
            412,
            "retention 0 (delete acknowledged messages at once) is not supported: time and size alone decide how long messages stay",
        )
    return {
        RETENTION_MS: "-1" if minutes < 0 else str(minutes * _MINUTE_MS),
        RETENTION_BYTES: "-1" if size < 0 else str(size * _MIB),
    }


def _deduplication_in(asked: object) -> dict[str, str]:
    """The config for a body with true or false. Raises `Problem` (400)."""
    if not isinstance(asked, bool):
        raise Problem(400, "expected true or false")
    return {DEDUPLICATION: str(asked).lower()}


def _is_deduplicated(configs: Mapping[str, str]) -> bool:
    return stream_configs.value(configs, DEDUPLICATION).lower() == "true"
