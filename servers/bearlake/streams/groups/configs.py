"""Configs of single groups, which replace the settings for them: those of consumer groups, share groups and streams groups.

All groups' configs are one entry of the metadata store, so that one read tells a server all of them. A server reads it every
`REFRESH_MS`, and after its own changes; a group may have configs before it exists.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from bearlake.errors import Conflict, Invalid, Overloaded, Unavailable
from bearlake.metadata.defaults import Defaults, DefaultsStore
from bearlake.streams.groups.consumer import configs as consumer_configs
from bearlake.streams.groups.consumer.settings import ConsumerGroupSettings
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.groups.share import configs as share_configs
from bearlake.streams.groups.share.settings import ShareGroupSettings
from bearlake.streams.groups.tasks import configs as streams_configs
from bearlake.streams.groups.tasks.settings import StreamsGroupSettings

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


class GroupConfigs:
    """The configs of all groups. Use it from the event loop's thread only."""

    def __init__(self, store: DefaultsStore, settings: GroupSettings) -> None:
        self._store = store
        self.settings = settings
        """The settings of groups without configs."""
        self._known: Mapping[str, Mapping[str, str]] = {}
        self._version = 0
        """Of the entry that is known. A read that began before this server's own change may end after it."""
        self._settings: dict[str, ConsumerGroupSettings] = {}
        self._share_settings: dict[str, ShareGroupSettings] = {}
        self._streams_settings: dict[str, StreamsGroupSettings] = {}

    async def run(self) -> None:
        """Read the configs again and again; runs until cancelled."""
        while True:
            try:
                self._learn(await self._store.get(ENTRY))
            except (Overloaded, Unavailable) as error:
                log.info("cannot read the configs of groups", extra={"error": repr(error)})
            await asyncio.sleep(REFRESH_MS / 1000)

    def of(self, group: str) -> ConsumerGroupSettings:
        """Return the settings of a consumer group."""
        return self._settings.get(group, self.settings.consumer)

    def share_of(self, group: str) -> ShareGroupSettings:
        """Return the settings of a share group."""
        return self._share_settings.get(group, self.settings.share)

    def streams_of(self, group: str) -> StreamsGroupSettings:
        """Return the settings of a streams group."""
        return self._streams_settings.get(group, self.settings.streams)

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
        if entry.version < self._version:
            return
        self._version = entry.version
        found: dict[str, dict[str, str]] = {}
        for key, value in entry.configs.items():
            name, _, group = key.partition(_SEPARATOR)
            found.setdefault(group, {})[name] = value
        if found != self._known:
            self._known = found
            consumer, share = self.settings.consumer, self.settings.share
            self._settings = {name: consumer_configs.applied(configs, consumer) for name, configs in found.items()}
            self._share_settings = {name: share_configs.applied(configs, share) for name, configs in found.items()}
            streams = self.settings.streams
            self._streams_settings = {
                name: streams_configs.applied(configs, streams) for name, configs in found.items()
            }


def is_config(name: str) -> bool:
    """Return whether groups have a config of this name."""
    return any(name in configs.BY_NAME for configs in (consumer_configs, share_configs, streams_configs))


def check(configs: Mapping[str, str], settings: GroupSettings) -> None:
    """Raise `Invalid` unless a group may have these configs."""
    for name in configs:
        if not is_config(name):
            raise Invalid(f"Unknown group config name: {name}")
    for_shares = {name: value for name, value in configs.items() if name in share_configs.BY_NAME}
    for_streams = {name: value for name, value in configs.items() if name in streams_configs.BY_NAME}
    for_consumers = {name: value for name, value in configs.items() if name in consumer_configs.BY_NAME}
    consumer_configs.check(for_consumers, settings.consumer)
    share_configs.check(for_shares, settings.share)
    streams_configs.check(for_streams, settings.streams)
