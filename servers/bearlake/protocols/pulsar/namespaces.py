"""Policies of namespaces: the configs that their topics have unless they say otherwise (`metadata.defaults`).

A topic that a Pulsar client creates begins with them. When they change, the topics of the namespace follow, whoever made them, but for
those that have a value of their own: another one than the namespace gave them.
"""

import contextlib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from bearlake.errors import Conflict, NotFound, Overloaded
from bearlake.protocols.pulsar import names
from bearlake.streams.principal import Principal

if TYPE_CHECKING:
    from bearlake.streams.catalog import StreamView
    from bearlake.streams.service import Streams

_GROUP = "pulsar:"
"""Before namespaces in the metadata store, which other protocols use too."""
_TRY_COUNT = 10


class Namespaces:
    """Namespaces of one deployment. Every call may raise `Unavailable`."""

    def __init__(self, streams: "Streams") -> None:
        self._streams = streams
        self._store = streams.metadata.defaults

    async def configs(self, namespace: str) -> Mapping[str, str]:
        """The configs that topics of the namespace begin with."""
        return (await self._store.get(_GROUP + namespace)).configs

    async def change(
        self, who: Principal, namespace: str, set_configs: Mapping[str, str], unset_configs: Collection[str]
    ) -> None:
        """Set and unset configs of the namespace, and of those of its topics that follow it. Cut off half-way, it is to be repeated.

        Raises `Denied`: `who` may not alter one of the topics; `Overloaded`: others change the namespace all the time.
        """
        for _ in range(_TRY_COUNT):
            before = await self._store.get(_GROUP + namespace)
            kept = {key: value for key, value in before.configs.items() if key not in unset_configs}
            change = _Change(before.configs, set_configs, unset_configs)
            await self._follow(who, namespace, change)
            try:
                await self._store.set(_GROUP + namespace, kept | dict(set_configs), version=before.version)
            except Conflict:
                continue
            await self._follow(who, namespace, change)  # topics that were made in between
            return
        raise Overloaded(f"the policies of namespace {namespace} change all the time")

    async def _follow(self, who: Principal, namespace: str, change: "_Change") -> None:
        streams = self._streams
        for view in [view for view in streams.catalog.views() if _is_in(view, namespace)]:
            if any(change.of(view.stream.configs)):
                with contextlib.suppress(NotFound):  # deleted meanwhile
                    await streams.change(who, view.stream, change.of)


class _Change(NamedTuple):
    before: Mapping[str, str]
    """What the namespace gave its topics so far."""
    set_configs: Mapping[str, str]
    unset_configs: Collection[str]

    def of(self, own: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
        """What a topic with these configs has to set and to unset."""
        wanted = {
            key: value
            for key, value in self.set_configs.items()
            if own.get(key) != value and own.get(key) in (None, self.before.get(key))
        }
        return wanted, [key for key in self.unset_configs if key in own and own[key] == self.before.get(key)]


def _is_in(view: "StreamView", namespace: str) -> bool:
    name = names.topic_of(view.name)
    return name is not None and name.namespace == namespace
