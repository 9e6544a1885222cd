"""Configs of single consumer groups, which replace the settings for them.

How long sessions are, how often members beat and partitions are assigned. Source: Apache Kafka, GroupConfig (names, bounds and texts);
KIP-848.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from bearlake.errors import Invalid
from bearlake.streams.groups.consumer.settings import ConsumerGroupSettings


class GroupConfig(NamedTuple):
    """One config of consumer groups, and the settings that it replaces and that bound it."""

    name: str
    setting: str
    doc: str

    def default(self, settings: ConsumerGroupSettings) -> int:
        """Return the value without the config."""
        return int(getattr(settings, self.setting))

    def bounds(self, settings: ConsumerGroupSettings) -> tuple[int, int]:
        """Return the smallest and the largest value."""
        stem = self.setting.removesuffix("_ms")
        return int(getattr(settings, f"{stem}_min_ms")), int(getattr(settings, f"{stem}_max_ms"))


ALL: tuple[GroupConfig, ...] = (
    GroupConfig(
        "consumer.assignment.interval.ms",
        "assignment_interval_ms",
        "The interval between assignment updates for a consumer group.",
    ),
    GroupConfig(
        "consumer.heartbeat.interval.ms",
        "heartbeat_interval_ms",
        "The heartbeat interval given to the members of a consumer group.",
    ),
    GroupConfig(
        "consumer.session.timeout.ms",
        "session_timeout_ms",
        "The timeout to detect client failures when using the consumer group protocol.",
    ),
)
"""All configs of consumer groups, by name."""

BY_NAME: Mapping[str, GroupConfig] = {config.name: config for config in ALL}


def applied(configs: Mapping[str, str], settings: ConsumerGroupSettings) -> ConsumerGroupSettings:
    """Return the settings of a group with these configs. A value outside the bounds, which may have changed since, counts as the bound."""
    for config in ALL:
        if config.name in configs:
            low, high = config.bounds(settings)
            value: Any = min(
                max(int(configs[config.name]), low), high
            )  # Any: `replace` knows the name only at run time
            settings = replace(settings, **{config.setting: value})
    return settings


def check(configs: Mapping[str, str], settings: ConsumerGroupSettings) -> None:
    """Raise `Invalid` unless a group may have these configs; they are all in `BY_NAME`."""
    for name, value in configs.items():
        config = BY_NAME[name]
        try:
            number = int(value)
        except ValueError as error:
            raise Invalid(f"Invalid value {value} for configuration {name}: Not a number of type INT") from error
        low, high = config.bounds(settings)
        kind = name.removeprefix("consumer.")
        if number < low:
            raise Invalid(f"{name} must be greater than or equal to group.consumer.min.{kind}")
        if number > high:
            raise Invalid(f"{name} must be less than or equal to group.consumer.max.{kind}")
    if (found := applied(configs, settings)).heartbeat_interval_ms >= found.session_timeout_ms:
        raise Invalid("consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms")
