"""Configs of single streams groups, which replace the settings for them.

Source: Apache Kafka, GroupConfig (names, bounds and texts); KIP-1071.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from bearlake.errors import Invalid
from bearlake.streams.groups.tasks.settings import StreamsGroupSettings

_INT_MAX = 2**31 - 1


class StreamsConfig(NamedTuple):
    """One config of streams groups, and the setting that it replaces."""

    name: str
    setting: str
    doc: str
    smallest: str | None = None
    """The setting with the smallest value; None: 0."""
    largest: str | None = None
    """The setting with the largest value; None: none."""

    def default(self, settings: StreamsGroupSettings) -> int:
        """Return the value without the config."""
        return int(getattr(settings, self.setting))

    def bounds(self, settings: StreamsGroupSettings) -> tuple[int, int]:
        """Return the smallest and the largest value."""
        low = 0 if self.smallest is None else int(getattr(settings, self.smallest))
        return low, _INT_MAX if self.largest is None else int(getattr(settings, self.largest))


def _bounded(kind: str, doc: str) -> StreamsConfig:
    """Return a config of a time with bounds of its own."""
    stem = kind.replace(".", "_")
    return StreamsConfig(f"streams.{kind}.ms", f"{stem}_ms", doc, f"{stem}_min_ms", f"{stem}_max_ms")


ALL: tuple[StreamsConfig, ...] = (
    _bounded("assignment.interval", "The interval between assignment updates for a streams group."),
    _bounded("heartbeat.interval", "The heartbeat interval given to the members of a streams group."),
    StreamsConfig(
        "streams.initial.rebalance.delay.ms",
        "initial_rebalance_delay_ms",
        "The time for which the first assignment of an empty streams group waits for more members.",
    ),
    StreamsConfig(
        "streams.num.standby.replicas",
        "num_standby_replicas",
        "The number of standby replicas for each task.",
        largest="standby_replicas_max",
    ),
    _bounded("session.timeout", "The timeout to detect client failures when using the streams group protocol."),
)
"""All configs of streams groups, by name."""

BY_NAME: Mapping[str, StreamsConfig] = {config.name: config for config in ALL}


def applied(configs: Mapping[str, str], settings: StreamsGroupSettings) -> StreamsGroupSettings:
    """Return the settings of a group with these configs. A value outside the bounds, which may have changed since, counts as the bound."""
    for config in ALL:
        if config.name in configs:
            low, high = config.bounds(settings)
            value: Any = min(
                max(int(configs[config.name]), low), high
            )  # Any: `replace` knows the name only at run time
            settings = replace(settings, **{config.setting: value})
    return settings


def check(configs: Mapping[str, str], settings: StreamsGroupSettings) -> None:
    """Raise `Invalid` unless a group may have these configs; they are all in `BY_NAME`."""
    for name, value in configs.items():
        config = BY_NAME[name]
        try:
            number = int(value)
        except ValueError as error:
            raise Invalid(f"Invalid value {value} for configuration {name}: Not a number of type INT") from error
        low, high = config.bounds(settings)
        kind = name.removeprefix("streams.")
        if number < 0:
            raise Invalid(f"Invalid value {value} for configuration {name}: Value must be at least 0")
        if number < low:
            raise Invalid(f"{name} must be greater than or equal to group.streams.min.{kind}")
        if number > high:
            raise Invalid(f"{name} must be less than or equal to group.streams.max.{kind.removeprefix('num.')}")
    if (found := applied(configs, settings)).heartbeat_interval_ms >= found.session_timeout_ms:
        raise Invalid("streams.session.timeout.ms must be greater than streams.heartbeat.interval.ms")
