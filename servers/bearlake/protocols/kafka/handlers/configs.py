"""Configs: describe, alter (replace all), alter incrementally, list resources.

`streams/configs.py` defines the topic configs; `group_configs.py` has those of groups. Broker configs are this server's settings under
Kafka's names. They are read-only, because settings come from the server's configuration file: to delete what a client may have altered
has no effect, as for topics (`kafka-reassign-partitions.sh --verify` deletes the limits of moves).

Source: KIP-133, KIP-226 (synonyms), KIP-339 (incremental), KIP-569 (types and documentation), KIP-1142 (ListConfigResources).
"""

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from functools import partial

from bearlake.errors import BearlakeError, Denied, Invalid
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode, code_of
from bearlake.protocols.kafka.handlers import group_configs
from bearlake.protocols.kafka.handlers.topics import changeable
from bearlake.protocols.kafka.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from bearlake.protocols.kafka.rendered import Rendered, render
from bearlake.protocols.kafka.rights import on_cluster
from bearlake.streams import config_changes
from bearlake.streams import configs as stream_configs
from bearlake.streams.catalog import ConfigChanges, ConfigDecision
from bearlake.streams.config import ConfigType
from bearlake.streams.internal_topics import is_internal
from bearlake.streams.principal import Operation, Resource, require
from bearlake.streams.turns import in_turns

_AT_ONCE = 50
"""Resources of one turn of the event loop. Each may have all configs with their synonyms and documentation: 0.2 ms."""


class ResourceType(IntEnum):
    """The resource types of the config APIs."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Source(IntEnum):
    """The source of a value (DescribeConfigs)."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class ConfigOperation(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class BadConfig(Invalid):
    """The name or value of a config is invalid."""


class ClusterDenied(Denied):
    """The caller lacks a right on the cluster."""


async def describe(context: KafkaContext, caller: Caller, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """All or the requested configs of each resource, with defaults."""
    return DescribeConfigsResponse(
        results=[
            await _describe(context, caller, resource, request)
            async for part in in_turns(request.resources, _AT_ONCE)
            for resource in part
        ]
    )


async def _describe(
    context: KafkaContext, caller: Caller, resource: DescribeConfigsRequest.Resource, request: DescribeConfigsRequest
) -> DescribeConfigsResponse.Resource:
    answer = DescribeConfigsResponse.Resource(
        resource_type=resource.resource_type, resource_name=resource.resource_name, configs=[], error_message=None
    )
    try:
        if resource.resource_type == ResourceType.TOPIC:
            configs = await _topic_configs(context, caller, resource.resource_name, request)
        elif resource.resource_type == ResourceType.BROKER:
            if not on_cluster(context, caller, Operation.DESCRIBE_CONFIGS):
                raise ClusterDenied(f"{caller.who} may not describe the configs of brokers")
            configs = _broker_configs(context, resource.resource_name)
        elif resource.resource_type == ResourceType.GROUP:
            configs = await group_configs.describe(
                context,
                caller,
                resource.resource_name,
                with_synonyms=request.include_synonyms,
                with_documentation=request.include_documentation,
            )
        elif resource.resource_type == ResourceType.CLIENT_METRICS:
            configs = []
        else:
            raise Invalid(f"resource type {resource.resource_type}: expected 2 (topic) or 4 (broker)")
    except BearlakeError as error:
        answer.error_code, answer.error_message = _code(error), str(error)
        return answer
    names = resource.configuration_keys
    answer.configs = [config for config in configs if names is None or config.name in names]
    return answer


async def _topic_configs(
    context: KafkaContext, caller: Caller, name: str, request: DescribeConfigsRequest
) -> list[DescribeConfigsResponse.Config]:
    require(context.streams.authorizer, caller.who, Operation.DESCRIBE_CONFIGS, Resource.STREAM, name)
    view = await context.topics.find(name)
    own = view.stream.configs
    described = []
    for config in stream_configs.ALL:
        is_own = config.name in own
        synonyms = []
        if request.include_synonyms:
            if is_own:
                synonyms.append(_synonym(config.name, own[config.name], Source.TOPIC))
            synonyms.append(_synonym(config.name, config.default, Source.DEFAULT))
        described.append(
            DescribeConfigsResponse.Config(
                name=config.name,
                value=own.get(config.name, config.default),
                read_only=is_internal(view),
                config_source=Source.TOPIC if is_own else Source.DEFAULT,
                is_sensitive=False,
                synonyms=synonyms,
                config_type=config.type,
                documentation=config.doc if request.include_documentation else None,
            )
        )
    return described


def _synonym(name: str, value: str, source: Source) -> DescribeConfigsResponse.Synonym:
    return DescribeConfigsResponse.Synonym(name=name, value=value, source=source)


def _node_ids(context: KafkaContext) -> list[int]:
    """Node ids of the live Kafka servers; excludes compaction workers."""
    return [
        server.ref.node_id
        for server in context.servers.live()
        if any(name.partition(":")[0] == "kafka" for name in server.endpoints)
    ]


def _broker_configs(context: KafkaContext, name: str) -> list[DescribeConfigsResponse.Config]:
    if name == "":
        return []  # an empty name means the cluster-wide dynamic configs, which do not exist here
    if not name.isdecimal() or int(name) not in _node_ids(context):
        raise Invalid(f"no live server has node id {name!r}")
    settings = context.settings
    groups = context.groups.settings
    defaults = stream_configs.BY_NAME
    values: Sequence[tuple[str, str, ConfigType]] = (
        ("auto.create.topics.enable", str(settings.auto_create_streams).lower(), ConfigType.BOOLEAN),
        ("broker.id", name, ConfigType.INT),
        ("compression.type", defaults["compression.type"].default, ConfigType.STRING),
        ("connections.max.idle.ms", str(settings.idle_ms), ConfigType.LONG),
        ("default.replication.factor", "1", ConfigType.INT),
        ("delete.topic.enable", "true", ConfigType.BOOLEAN),
        *group_configs.broker_configs(groups),
        ("group.initial.rebalance.delay.ms", str(groups.initial_rebalance_delay_ms), ConfigType.INT),
        ("group.max.session.timeout.ms", str(groups.session_timeout_max_ms), ConfigType.INT),
        ("group.max.size", str(groups.size_max), ConfigType.INT),
        ("group.min.session.timeout.ms", str(groups.session_timeout_min_ms), ConfigType.INT),
        ("log.cleanup.policy", defaults["cleanup.policy"].default, ConfigType.LIST),
        ("log.message.timestamp.type", defaults["message.timestamp.type"].default, ConfigType.STRING),
        ("log.retention.bytes", defaults["retention.bytes"].default, ConfigType.LONG),
        ("log.retention.ms", defaults["retention.ms"].default, ConfigType.LONG),
        ("message.max.bytes", defaults["max.message.bytes"].default, ConfigType.INT),
        ("min.insync.replicas", "1", ConfigType.INT),
        ("node.id", name, ConfigType.INT),
        ("num.partitions", str(settings.default_partition_count), ConfigType.INT),
        ("offset.metadata.max.bytes", str(groups.offset_metadata_bytes_max), ConfigType.INT),
        ("socket.request.max.bytes", str(settings.request_bytes_max), ConfigType.INT),
    )
    return [
        DescribeConfigsResponse.Config(
            name=key,
            value=value,
            read_only=True,
            config_source=Source.STATIC_BROKER,
            is_sensitive=False,
            synonyms=[],
            config_type=kind,
            documentation=None,
        )
        for key, value, kind in values
    ]


async def alter(context: KafkaContext, caller: Caller, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace all configs of each topic or group; configs not in the request return to their defaults."""
    responses = []
    async for part in in_turns(request.resources, _AT_ONCE):
        for resource in part:
            answer = AlterConfigsResponse.Resource(
                resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
            )
            responses.append(answer)
            try:
                stream_configs.check_count(len(resource.configs))
                desired = {config.name: config.value for config in resource.configs if config.value is not None}
                await _change(context, caller, resource, request.validate_only, partial(_replacement, desired))
            except BearlakeError as error:
                answer.error_code, answer.error_message = _code(error), str(error)
    return AlterConfigsResponse(responses=responses)


async def incremental_alter(
    context: KafkaContext, caller: Caller, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Set, unset, append to and subtract from configs of each topic or group; other configs stay unchanged."""
    responses = []
    async for part in in_turns(request.resources, _AT_ONCE):
        for resource in part:
            answer = IncrementalAlterConfigsResponse.Resource(
                resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
            )
            responses.append(answer)
            try:
                stream_configs.check_count(len(resource.configs))
                await _change(context, caller, resource, request.validate_only, partial(_changes, resource.configs))
            except BearlakeError as error:
                answer.error_code, answer.error_message = _code(error), str(error)
    return IncrementalAlterConfigsResponse(responses=responses)


def _replacement(desired: Mapping[str, str], present: Mapping[str, str]) -> ConfigChanges:
    """The configs to set and to unset so that only `desired` remains, and the mark of an import: to remove it is to promote the stream."""
    return desired, set(present) - set(desired) - {stream_configs.IMPORT_SOURCE}


def _changes(changes: Sequence[IncrementalAlterConfigsRequest.Config], present: Mapping[str, str]) -> ConfigChanges:
    """The configs to set and to unset. Raises `BadConfig`, `Invalid`."""
    names = [change.name for change in changes]
    if len(set(names)) != len(names):
        raise Invalid("a config is given more than once in the request")
    changed: dict[str, str] = {}
    unset: set[str] = set()
    for change in changes:
        if change.config_operation == ConfigOperation.DELETE:
            unset.add(change.name)
            continue
        if change.value is None:
            raise Invalid(f"{change.name}: expected a value")
        if change.config_operation == ConfigOperation.SET:
            changed[change.name] = change.value
        elif change.config_operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
            changed[change.name] = _edit_list(present, change)
        else:
            raise Invalid(f"{change.name}: operation {change.config_operation}, expected 0 to 3")
    return changed, unset


def _edit_list(present: Mapping[str, str], change: IncrementalAlterConfigsRequest.Config) -> str:
    config = stream_configs.BY_NAME.get(change.name)
    if config is None or config.type is not ConfigType.LIST:
        raise BadConfig(
            f"Can't {ConfigOperation(change.config_operation).name} to key {change.name} because its type is not LIST."
        )
    assert change.value is not None
    items = [item for item in stream_configs.value(present, change.name).split(",") if item]
    edits = [item.strip() for item in change.value.split(",") if item.strip()]
    if change.config_operation == ConfigOperation.APPEND:
        return ",".join(items + [item for item in edits if item not in items])
    return ",".join(item for item in items if item not in edits)


async def _change(
    context: KafkaContext,
    caller: Caller,
    resource: AlterConfigsRequest.Resource | IncrementalAlterConfigsRequest.Resource,
    validate_only: bool,
    decide: ConfigDecision,
) -> None:
    """Change a topic's configs: `decide` maps its current configs to changes.

    Raises `BadConfig`, `Invalid`, and the errors of `Streams.change`.
    """
    if resource.resource_type == ResourceType.GROUP:
        await group_configs.change(context, caller, resource.resource_name, decide, is_trial=validate_only)
        return
    if resource.resource_type == ResourceType.BROKER:
        if not on_cluster(context, caller, Operation.ALTER_CONFIGS):
            raise ClusterDenied(f"{caller.who} may not alter the configs of brokers")
        _broker_configs(context, resource.resource_name)
        if not decide({})[0]:
            return  # no config of a server was ever altered, so none is there to delete
    if resource.resource_type != ResourceType.TOPIC:
        raise Invalid(
            "only configs of topics and groups can be altered: a server's settings come from its configuration file"
        )
    stream = (await changeable(context, caller, Operation.ALTER_CONFIGS, resource.resource_name)).stream
    changed, unset = _checked(decide, stream.configs)
    if not validate_only and (changed or unset):
        await context.streams.change(caller.who, stream, partial(_checked, decide))


def _checked(decide: ConfigDecision, present: Mapping[str, str]) -> ConfigChanges:
    """The changes that `decide` returns. Raises `BadConfig`.

    To delete a config that does not exist succeeds without effect. Source: Apache Kafka 4.3, `ConfigurationControlManager`.
    """
    changed, deleted = decide(present)
    unset = {name for name in deleted if config_changes.can_be_unset(present, name)}
    try:
        stream_configs.check(changed)
        config_changes.check_change(present, changed, unset)
    except Invalid as error:
        raise BadConfig(str(error)) from error
    return changed, unset


def _code(error: BearlakeError) -> ErrorCode:
    if isinstance(error, ClusterDenied):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if isinstance(error, group_configs.GroupDenied):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    is_bad = isinstance(error, BadConfig | group_configs.BadGroupConfig)
    return ErrorCode.INVALID_CONFIG if is_bad else code_of(error)


async def list_resources(
    context: KafkaContext, caller: Caller, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse | Rendered:
    """The names of brokers, of groups with configs, and of topics that the caller may describe.

    Version 0 asks only for client metrics, which do not exist here.
    """
    if not on_cluster(context, caller, Operation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, config_resources=[])
    kinds = set(request.resource_types) if caller.version >= 1 else {int(ResourceType.CLIENT_METRICS)}
    if not kinds:
        kinds = {int(kind) for kind in ResourceType}
    async with context.streams.catalog.listing(caller.who):
        return await _resources(context, caller, kinds)


async def _resources(context: KafkaContext, caller: Caller, kinds: Collection[int]) -> Rendered:
    found = []
    if ResourceType.TOPIC in kinds:
        async for part in in_turns(context.topics.names()):
            seen = [name for name in part if context.streams.sees(caller.who, Operation.DESCRIBE, name)]
            found += [(name, ResourceType.TOPIC) for name in seen]
    if ResourceType.BROKER in kinds:
        found += [(str(node_id), ResourceType.BROKER) for node_id in _node_ids(context)]
    if ResourceType.GROUP in kinds:
        found += [(name, ResourceType.GROUP) for name in context.streams.group_configs.groups()]

    def response() -> ListConfigResourcesResponse:
        resource = ListConfigResourcesResponse.ConfigResource
        return ListConfigResourcesResponse(
            config_resources=[resource(resource_name=name, resource_type=kind) for name, kind in found]
        )

    return await render(context.workers, codec.ApiKey.LIST_CONFIG_RESOURCES, caller.version, len(found), response)
