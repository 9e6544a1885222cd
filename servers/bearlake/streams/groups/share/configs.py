"""Configs of single share groups, which replace the settings for them.

Source: Apache Kafka, GroupConfig and ShareGroupAutoOffsetResetStrategy (names, bounds and texts); KIP-932, KIP-1240.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from bearlake.errors import Invalid
from bearlake.streams.groups.share.settings import ISOLATION_LEVELS, ShareGroupSettings


class ShareConfig(NamedTuple):
    """One config of share groups, and the setting that it replaces."""

    name: str
    setting: str
    doc: str
    kind: str = "INT"
    """INT, STRING or BOOLEAN."""

    def default(self, settings: ShareGroupSettings) -> str:
        """Return the value without the config."""
        value = getattr(settings, self.setting)
        return str(value).lower() if self.kind == "BOOLEAN" else str(value)

    def bounds(self, settings: ShareGroupSettings) -> tuple[int, int]:
        """Return the smallest and the largest value of an INT."""
        stem, unit = self.setting.removesuffix("_ms"), "_ms" if self.setting.endswith("_ms") else ""
        return int(getattr(settings, f"{stem}_min{unit}")), int(getattr(settings, f"{stem}_max{unit}"))

    def parse(self, value: str) -> Any:
        """Return the value in the setting's type. Raises `Invalid`."""
        if self.kind == "INT":
            try:
                return int(value)
            except ValueError as error:
                text = f"Invalid value {value} for configuration {self.name}: Not a number of type INT"
                raise Invalid(text) from error
        if self.kind == "BOOLEAN":
            if value.lower() not in ("true", "false"):
                text = f"Invalid value {value} for configuration {self.name}: Expected value to be either true or false"
                raise Invalid(text)
            return value.lower() == "true"
        if self.setting == "isolation_level" and value not in ISOLATION_LEVELS:
            text = f"Invalid value {value} for configuration {self.name}: String must be one of: "
            raise Invalid(text + ", ".join(ISOLATION_LEVELS[::-1]))
        if self.setting == "auto_offset_reset":
            parse_reset(value, self.name)
        return value


ALL: tuple[ShareConfig, ...] = (
    ShareConfig(
        "share.assignment.interval.ms",
        "assignment_interval_ms",
        "The interval between assignment updates for a share group.",
    ),
    ShareConfig(
        "share.auto.offset.reset",
        "auto_offset_reset",
        "The strategy to initialize the share-partition start offset: earliest, latest, or by_duration:<duration>.",
        "STRING",
    ),
    ShareConfig(
        "share.delivery.count.limit",
        "delivery_count_limit",
        "The maximum number of delivery attempts for a record delivered to a share group.",
    ),
    ShareConfig(
        "share.heartbeat.interval.ms",
        "heartbeat_interval_ms",
        "The heartbeat interval given to the members of a share group.",
    ),
    ShareConfig(
        "share.isolation.level",
        "isolation_level",
        "Controls how to read records written transactionally: read_committed or read_uncommitted.",
        "STRING",
    ),
    ShareConfig(
        "share.partition.max.record.locks",
        "partition_record_locks",
        "Share-group record lock limit per share-partition.",
    ),
    ShareConfig(
        "share.record.lock.duration.ms",
        "record_lock_duration_ms",
        "The record acquisition lock duration in milliseconds for share groups.",
    ),
    ShareConfig(
        "share.renew.acknowledge.enable",
        "renew_acknowledge_enable",
        "Whether the renew acknowledge type is enabled for the share group.",
        "BOOLEAN",
    ),
    ShareConfig(
        "share.session.timeout.ms",
        "session_timeout_ms",
        "The timeout to detect client failures when using the share group protocol.",
    ),
)
"""All configs of share groups, by name."""

BY_NAME: Mapping[str, ShareConfig] = {config.name: config for config in ALL}

_DURATION = re.compile(
    r"[Pp](?:(\d{1,18})[Dd])?"
    r"(?:[Tt](?=\d)(?:(\d{1,18})[Hh])?(?:(\d{1,18})[Mm])?(?:(\d{1,18})(?:\.(\d{1,9}))?[Ss])?)?"
)


class Reset(NamedTuple):
    """Where a group begins in a partition that is new to it."""

    is_latest: bool = False
    age_ms: int | None = None
    """Age (ms) of the oldest record; None: the start or the end of the partition."""


def parse_reset(value: str, name: str = "auto_offset_reset") -> Reset:
    """Return the meaning of `earliest`, `latest` or `by_duration:PnDTnHnMn.nS`. Raises `Invalid`."""
    kind, _, duration = value.lower().partition(":")
    if value.lower() in ("earliest", "latest"):
        return Reset(is_latest=kind == "latest")
    found = _DURATION.fullmatch(duration) if kind == "by_duration" else None
    if found is None or not any(found.groups()):
        raise Invalid(f"Invalid value {value} for configuration {name}: unknown share auto offset reset strategy")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
    rest_ms = int((found[5] or "0").ljust(9, "0")[:3])
    return Reset(age_ms=(((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + rest_ms)


def applied(configs: Mapping[str, str], settings: ShareGroupSettings) -> ShareGroupSettings:
    """Return the settings of a group with these configs. A value outside the bounds, which may have changed since, counts as the bound."""
    for config in ALL:
        if config.name in configs:
            value = config.parse(configs[config.name])
            if config.kind == "INT":
                low, high = config.bounds(settings)
                value = min(max(value, low), high)
            settings = replace(settings, **{config.setting: value})
    return settings


def check(configs: Mapping[str, str], settings: ShareGroupSettings) -> None:
    """Raise `Invalid` unless a group may have these configs; they are all in `BY_NAME`."""
    for name, value in configs.items():
        config = BY_NAME[name]
        number = config.parse(value)
        if config.kind != "INT":
            continue
        low, high = config.bounds(settings)
        kind = name.removeprefix("share.")
        if number < low:
            raise Invalid(f"{name} must be greater than or equal to group.share.min.{kind}")
        if number > high:
            raise Invalid(f"{name} must be less than or equal to group.share.max.{kind}")
    if (found := applied(configs, settings)).heartbeat_interval_ms >= found.session_timeout_ms:
        raise Invalid("share.session.timeout.ms must be greater than share.heartbeat.interval.ms")
