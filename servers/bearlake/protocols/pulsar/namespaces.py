"""Policies of namespaces: the default configs of their topics (`metadata.defaults`).

A topic that a Pulsar client creates starts with these configs. When a policy changes, it is applied to all topics of the namespace,
including those that other clients created. It is not applied to topics whose value differs from the namespace's previous value.
"""

import contextlib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from bearlake.errors import Conflict, Denied, NotFound, Overloaded
from bearlake.protocols.pulsar import names
from bearlake.streams.principal import Operation, Principal, Resource, require
from bearlake.streams.turns import in_turns

if TYPE_CHECKING:
    from bearlake.streams.catalog import StreamView
    from bearlake.streams.service import Streams

_GROUP = "pulsar:"
"""The prefix of namespaces in the metadata store, which other protocols use too."""
_TRY_COUNT = 10


class Namespaces:
    """The namespaces of one deployment. Every method may raise `Unavailable`."""

    def __init__(self, streams: "Streams") -> None:
        self._streams = streams
        self._store = streams.metadata.defaults

    async def configs(self, namespace: str) -> Mapping[str, str]:
        """The configs of new topics in the namespace."""
        return (await self._store.get(_GROUP + namespace)).configs

    async def change(
        self, who: Principal, namespace: str, set_configs: Mapping[str, str], unset_configs: Collection[str]
    ) -> None:
        """Set and unset configs of the namespace, and of its topics that follow it. Repeat the call if it was interrupted.

        Raises:
            Denied: `who` may not alter the namespace, or one of the topics that the change concerns.
            Overloaded: too many concurrent changes of the namespace.
        """
        require(self._streams.authorizer, who, Operation.ALTER, Resource.NAMESPACE, namespace)
        for _ in range(_TRY_COUNT):
            before = await self._store.get(_GROUP + namespace)
            remaining = {key: value for key, value in before.configs.items() if key not in unset_configs}
            change = _Change(before.configs, set_configs, unset_configs)
            await self._follow(who, namespace, change)
            try:
                await self._store.set(_GROUP + namespace, remaining | dict(set_configs), version=before.version)
            except Conflict:
                continue
            await self._follow(who, namespace, change)  # topics that were created in between
            return
        raise Overloaded(f"too many concurrent changes to the policies of namespace {namespace}")

    async def _follow(self, who: Principal, namespace: str, change: "_Change") -> None:
        """Change the topics that follow the namespace, if `who` may alter all of them. The refusal does not name a topic."""
        streams = self._streams
        async with streams.catalog.listing(who):
            views = await self._following(namespace, change)
        may_all = True
        async for part in in_turns(views):
            may_all = may_all and all(streams.may_change(who, view.name) for view in part)
        if not may_all:
            raise Denied(
                f"{who} may not {Operation.ALTER.value} every topic of namespace {namespace} that the change concerns"
            )
        for view in views:
            with contextlib.suppress(NotFound):  # deleted meanwhile
                await streams.change(who, view.stream, change.of)

    async def _following(self, namespace: str, change: "_Change") -> "list[StreamView]":
        """The streams of the namespace that the change concerns, from this server's catalog."""
        catalog, topic_in = self._streams.catalog, names.topics_in(namespace)
        found = []
        async for part in in_turns(catalog.names()):
            views = [view for name in part if topic_in(name) is not None and (view := catalog.peek(name)) is not None]
            found += [view for view in views if any(change.of(view.stream.configs))]
        return found


class _Change(NamedTuple):
    before: Mapping[str, str]
    """The previous configs of the namespace."""
    set_configs: Mapping[str, str]
    unset_configs: Collection[str]

    def of(self, own: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
        """The configs that a topic with these configs must set and unset."""
        changed = {
            key: value
            for key, value in self.set_configs.items()
            if own.get(key) != value and own.get(key) in (None, self.before.get(key))
        }
        return changed, [key for key in self.unset_configs if key in own and own[key] == self.before.get(key)]
