"""Configs of groups, for DescribeConfigs, AlterConfigs and IncrementalAlterConfigs; and the servers' settings of consumer groups.

Source: KIP-848 (resource type GROUP); Apache Kafka for sources of values and texts of errors.
"""

from collections.abc import Sequence

from bearlake.errors import Denied, Invalid
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.messages import DescribeConfigsResponse
from bearlake.protocols.kafka.rights import on_group
from bearlake.streams.catalog import ConfigDecision
from bearlake.streams.configs import ConfigType
from bearlake.streams.groups.consumer import configs
from bearlake.streams.groups.consumer.settings import ConsumerGroupSettings
from bearlake.streams.principal import Operation, Resource

GROUP_CONFIG, DEFAULT_CONFIG = 8, 5
"""Sources of values."""


class GroupDenied(Denied):
    """The caller lacks a right on the group."""


class BadGroupConfig(Invalid):
    """The name or value of a config is invalid."""


async def describe(
    context: KafkaContext, caller: Caller, group: str, *, with_synonyms: bool, with_documentation: bool
) -> list[DescribeConfigsResponse.Config]:
    """All configs of a group. Raises `Invalid`, `GroupDenied`, `Unavailable`."""
    if not on_group(context, caller, Operation.DESCRIBE_CONFIGS, group):
        raise GroupDenied(f"{caller.who} may not describe the configs of group {group!r}")
    if group == "":
        raise Invalid("Group name must not be empty")
    own = await context.streams.group_configs.get(group)
    settings = context.streams.group_configs.settings
    described = []
    for config in configs.ALL:
        default = str(config.default(settings))
        synonym = DescribeConfigsResponse.Synonym
        synonyms = [synonym(name=f"group.{config.name}", value=default, source=DEFAULT_CONFIG)]
        if config.name in own:
            synonyms.insert(0, synonym(name=config.name, value=own[config.name], source=GROUP_CONFIG))
        described.append(
            DescribeConfigsResponse.Config(
                name=config.name,
                value=own.get(config.name, default),
                read_only=False,
                config_source=GROUP_CONFIG if config.name in own else DEFAULT_CONFIG,
                is_sensitive=False,
                synonyms=synonyms if with_synonyms else [],
                config_type=ConfigType.INT,
                documentation=config.doc if with_documentation else None,
            )
        )
    return described


async def change(context: KafkaContext, caller: Caller, group: str, decide: ConfigDecision, *, is_trial: bool) -> None:
    """Change a group's configs. Raises `Invalid`, `BadGroupConfig`, `GroupDenied`, `Unavailable`, `Overloaded`."""
    if not on_group(context, caller, Operation.ALTER_CONFIGS, group):
        raise GroupDenied(f"{caller.who} may not alter the configs of group {group!r}")
    if group == "":
        raise Invalid("Default group resources are not allowed.")
    known = context.streams.group_configs
    changed, unset = decide(await known.get(group))
    for name in unset:
        if name not in configs.BY_NAME:
            raise BadGroupConfig(f"Unknown group config name: {name}")
    details = ", ".join([*(f"{name}={value}" for name, value in changed.items()), *(f"-{name}" for name in unset)])
    if is_trial:
        await _changed(known, group, decide, is_trial=True)
        return
    with context.streams.audit.change(
        caller.who, Operation.ALTER_CONFIGS, Resource.GROUP.value, group, f"configs: {details}"
    ):
        await _changed(known, group, decide, is_trial=False)


async def _changed(known: configs.GroupConfigs, group: str, decide: ConfigDecision, *, is_trial: bool) -> None:
    try:
        await known.change(group, decide, is_trial=is_trial)
    except Invalid as error:
        raise BadGroupConfig(str(error)) from error


def broker_configs(settings: ConsumerGroupSettings) -> Sequence[tuple[str, str, ConfigType]]:
    """The settings of consumer groups under Kafka's names."""
    numbers = {
        "group.consumer.assignment.interval.ms": settings.assignment_interval_ms,
        "group.consumer.heartbeat.interval.ms": settings.heartbeat_interval_ms,
        "group.consumer.max.assignment.interval.ms": settings.assignment_interval_max_ms,
        "group.consumer.max.heartbeat.interval.ms": settings.heartbeat_interval_max_ms,
        "group.consumer.max.session.timeout.ms": settings.session_timeout_max_ms,
        "group.consumer.max.size": settings.size_max,
        "group.consumer.min.assignment.interval.ms": settings.assignment_interval_min_ms,
        "group.consumer.min.heartbeat.interval.ms": settings.heartbeat_interval_min_ms,
        "group.consumer.min.session.timeout.ms": settings.session_timeout_min_ms,
        "group.consumer.session.timeout.ms": settings.session_timeout_ms,
    }
    return (
        ("group.consumer.assignors", ",".join(settings.assignors), ConfigType.LIST),
        ("group.consumer.migration.policy", settings.migration_policy, ConfigType.STRING),
        *((name, str(value), ConfigType.INT) for name, value in numbers.items()),
        ("group.coordinator.rebalance.protocols", "classic,consumer", ConfigType.LIST),
    )
