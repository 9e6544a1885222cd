"""Configs of single groups, which replace the settings for them: how long sessions are, how often members beat and partitions are assigned.

All groups' configs are one entry of the metadata store, so that one read tells a server all of them. A server reads it every
`REFRESH_MS`, and after its own changes; a group may have configs before it exists.

Source: Apache Kafka, GroupConfig (names, bounds and texts); KIP-848.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from bearlake.errors import Conflict, Invalid, Overloaded, Unavailable
from bearlake.metadata.defaults import Defaults, DefaultsStore
from bearlake.streams.groups.consumer.settings import ConsumerGroupSettings

log = logging.getLogger(__name__)

ENTRY = "kafka-groups"
"""Name of the entry."""
COUNT_MAX = 10_000
"""Configs of all groups together."""
REFRESH_MS = 5_000
"""Time (ms) after which a server knows what another server changed."""
TRY_COUNT = 10
"""Attempts at a change before giving up because of concurrent changes."""

_SEPARATOR = ":"
"""Between a config's name and the group's name, which may have any characters."""

Changes = tuple[Mapping[str, str], Collection[str]]
"""Configs to set, and those to unset."""


class GroupConfig(NamedTuple):
    """One config of groups, and the settings that it replaces and that bound it."""

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
"""All configs of groups, by name."""

BY_NAME: Mapping[str, GroupConfig] = {config.name: config for config in ALL}


class GroupConfigs:
    """The configs of all groups. Use it from the event loop's thread only."""

    def __init__(self, store: DefaultsStore, settings: ConsumerGroupSettings) -> None:
        self._store = store
        self.settings = settings
        """The settings of groups without configs."""
        self._known: Mapping[str, Mapping[str, str]] = {}
        self._settings: dict[str, ConsumerGroupSettings] = {}

    async def run(self) -> None:
        """Read the configs again and again; runs until cancelled."""
        while True:
            try:
                self._learn(await self._store.get(ENTRY))
            except Unavailable as error:
                log.info("cannot read the configs of groups", extra={"error": repr(error)})
            await asyncio.sleep(REFRESH_MS / 1000)

    def of(self, group: str) -> ConsumerGroupSettings:
        """Return the settings of a group."""
        return self._settings.get(group, self.settings)

    def groups(self) -> list[str]:
        """Return the names of the groups that have configs, sorted."""
        return sorted(self._known)

    async def get(self, group: str) -> Mapping[str, str]:
        """Return the group's own configs as of now. Raises `Unavailable`."""
        self._learn(await self._store.get(ENTRY))
        return self._known.get(group, {})

    async def change(self, group: str, decide: Callable[[Mapping[str, str]], Changes], *, is_trial: bool) -> None:
        """Set and unset the configs that `decide` returns for the present ones; with `is_trial`, only check them.

        Raises `Invalid`, `Unavailable`; `Overloaded` after too many concurrent changes.
        """
        for _ in range(TRY_COUNT):
            entry = await self._store.get(ENTRY)
            self._learn(entry)
            changed, unset = decide(self._known.get(group, {}))
            present = {name: value for name, value in self._known.get(group, {}).items() if name not in unset}
            present.update(changed)
            check(present, self.settings)
            if is_trial:
                return
            configs = {key: value for key, value in entry.configs.items() if key.partition(_SEPARATOR)[2] != group}
            configs |= {f"{name}{_SEPARATOR}{group}": value for name, value in present.items()}
            if len(configs) > COUNT_MAX and len(configs) > len(entry.configs):
                raise Invalid(f"groups have {len(entry.configs)} configs already, the limit is {COUNT_MAX}")
            try:
                self._learn(await self._store.set(ENTRY, configs, version=entry.version))
            except Conflict:
                continue
            return
        raise Overloaded("the configs of groups change all the time")

    def _learn(self, entry: Defaults) -> None:
        found: dict[str, dict[str, str]] = {}
        for key, value in entry.configs.items():
            name, _, group = key.partition(_SEPARATOR)
            found.setdefault(group, {})[name] = value
        if found != self._known:
            self._known = found
            self._settings = {group: applied(configs, self.settings) for group, configs in found.items()}


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
    """Raise `Invalid` unless a group may have these configs."""
    for name, value in configs.items():
        config = BY_NAME.get(name)
        if config is None:
            raise Invalid(f"Unknown group config name: {name}")
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
