"""Configs of groups, for DescribeConfigs, AlterConfigs and IncrementalAlterConfigs; and the servers' settings of consumer groups.

Source: KIP-848 (resource type GROUP); Apache Kafka for sources of values and texts of errors.
"""

from collections.abc import Sequence

from bearlake.errors import Denied, Invalid
from bearlake.protocols.kafka.apis import SERVES_SHARE_GROUPS
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.messages import DescribeConfigsResponse
from bearlake.protocols.kafka.rights import on_group
from bearlake.streams.catalog import ConfigDecision
from bearlake.streams.config import ConfigType
from bearlake.streams.groups import configs
from bearlake.streams.groups.consumer import configs as consumer_configs
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.groups.share import configs as share_configs
from bearlake.streams.groups.share.settings import ASSIGNOR
from bearlake.streams.groups.tasks import configs as streams_configs
from bearlake.streams.principal import Operation, Resource

GROUP_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 8, 4, 5
"""Sources of values."""
_WITHOUT_BROKER_CONFIG = frozenset(
    {"share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable"}
)
"""Configs that no config of servers replaces in Kafka: a server's setting counts as their default."""


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
    described = []
    defaults = {name: default for name, default, *_ in _all(GroupSettings())}
    for name, value, kind, doc in _all(context.streams.group_configs.settings):
        synonyms = _synonyms(name, own.get(name), value, defaults[name])
        described.append(
            DescribeConfigsResponse.Config(
                name=name,
                value=synonyms[0].value,
                read_only=False,
                config_source=synonyms[0].source,
                is_sensitive=False,
                synonyms=synonyms if with_synonyms else [],
                config_type=kind,
                documentation=doc if with_documentation else None,
            )
        )
    return described


def _synonyms(name: str, own: str | None, setting: str, default: str) -> list[DescribeConfigsResponse.Synonym]:
    """Where a config's value may come from, the first one first: the group's own, the server's setting if it was changed, the default."""
    synonym = DescribeConfigsResponse.Synonym
    found = [] if own is None else [synonym(name=name, value=own, source=GROUP_CONFIG)]
    if name in _WITHOUT_BROKER_CONFIG:
        return [*found, synonym(name=name, value=setting, source=DEFAULT_CONFIG)]
    if setting != default:
        found.append(synonym(name=f"group.{name}", value=setting, source=STATIC_BROKER_CONFIG))
    return [*found, synonym(name=f"group.{name}", value=default, source=DEFAULT_CONFIG)]


def _all(settings: GroupSettings) -> list[tuple[str, str, ConfigType, str]]:
    """All configs: names, values without the config, types and documentation."""
    found = [
        (config.name, str(config.default(settings.consumer)), ConfigType.INT, config.doc)
        for config in consumer_configs.ALL
    ]
    if SERVES_SHARE_GROUPS:
        found += [
            (config.name, config.default(settings.share), ConfigType[config.kind], config.doc)
            for config in share_configs.ALL
        ]
    found += [
        (config.name, str(config.default(settings.streams)), ConfigType.INT, config.doc)
        for config in streams_configs.ALL
    ]
    return found


async def change(context: KafkaContext, caller: Caller, group: str, decide: ConfigDecision, *, is_trial: bool) -> None:
    """Change a group's configs. Raises `Invalid`, `BadGroupConfig`, `GroupDenied`, `Unavailable`, `Overloaded`."""
    if not on_group(context, caller, Operation.ALTER_CONFIGS, group):
        raise GroupDenied(f"{caller.who} may not alter the configs of group {group!r}")
    if group == "":
        raise Invalid("Default group resources are not allowed.")
    known = context.streams.group_configs
    changed, deleted = decide(await known.get(group))
    unset = [name for name in deleted if configs.is_config(name)]  # to delete another one has no effect, as in Kafka
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


def broker_configs(groups: GroupSettings) -> Sequence[tuple[str, str, ConfigType]]:
    """The settings of consumer groups and share groups under Kafka's names."""
    settings, share, streams = groups.consumer, groups.share, groups.streams
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
    if SERVES_SHARE_GROUPS:
        numbers |= {
            "group.share.assignment.interval.ms": share.assignment_interval_ms,
            "group.share.delivery.count.limit": share.delivery_count_limit,
            "group.share.heartbeat.interval.ms": share.heartbeat_interval_ms,
            "group.share.max.assignment.interval.ms": share.assignment_interval_max_ms,
            "group.share.max.delivery.count.limit": share.delivery_count_limit_max,
            "group.share.max.heartbeat.interval.ms": share.heartbeat_interval_max_ms,
            "group.share.max.partition.max.record.locks": share.partition_record_locks_max,
            "group.share.max.record.lock.duration.ms": share.record_lock_duration_max_ms,
            "group.share.max.session.timeout.ms": share.session_timeout_max_ms,
            "group.share.max.share.sessions": share.session_count_max,
            "group.share.max.size": share.size_max,
            "group.share.min.assignment.interval.ms": share.assignment_interval_min_ms,
            "group.share.min.delivery.count.limit": share.delivery_count_limit_min,
            "group.share.min.heartbeat.interval.ms": share.heartbeat_interval_min_ms,
            "group.share.min.partition.max.record.locks": share.partition_record_locks_min,
            "group.share.min.record.lock.duration.ms": share.record_lock_duration_min_ms,
            "group.share.min.session.timeout.ms": share.session_timeout_min_ms,
            "group.share.partition.max.record.locks": share.partition_record_locks,
            "group.share.record.lock.duration.ms": share.record_lock_duration_ms,
            "group.share.session.timeout.ms": share.session_timeout_ms,
        }
    numbers |= {
        "group.streams.assignment.interval.ms": streams.assignment_interval_ms,
        "group.streams.heartbeat.interval.ms": streams.heartbeat_interval_ms,
        "group.streams.initial.rebalance.delay.ms": streams.initial_rebalance_delay_ms,
        "group.streams.max.assignment.interval.ms": streams.assignment_interval_max_ms,
        "group.streams.max.heartbeat.interval.ms": streams.heartbeat_interval_max_ms,
        "group.streams.max.session.timeout.ms": streams.session_timeout_max_ms,
        "group.streams.max.size": streams.size_max,
        "group.streams.max.standby.replicas": streams.standby_replicas_max,
        "group.streams.min.assignment.interval.ms": streams.assignment_interval_min_ms,
        "group.streams.min.heartbeat.interval.ms": streams.heartbeat_interval_min_ms,
        "group.streams.min.session.timeout.ms": streams.session_timeout_min_ms,
        "group.streams.num.standby.replicas": streams.num_standby_replicas,
        "group.streams.session.timeout.ms": streams.session_timeout_ms,
    }
    protocols = "classic,consumer,share,streams" if SERVES_SHARE_GROUPS else "classic,consumer,streams"
    return (
        ("group.consumer.assignors", ",".join(settings.assignors), ConfigType.LIST),
        ("group.consumer.migration.policy", settings.migration_policy, ConfigType.STRING),
        *((name, str(value), ConfigType.INT) for name, value in numbers.items()),
        ("group.coordinator.rebalance.protocols", protocols, ConfigType.LIST),
        *((("group.share.assignors", ASSIGNOR, ConfigType.LIST),) if SERVES_SHARE_GROUPS else ()),
    )
