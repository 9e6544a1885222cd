"""The finalizer of Streams that go with their records: put before these can be, and taken away when they are deleted."""

import logging
from collections.abc import Mapping, Sequence

from bearlake_operator import api
from bearlake_operator.admin import AdminClient, ObservedStream
from bearlake_operator.api import Resource
from bearlake_operator.errors import OperatorError
from bearlake_operator.handlers.many import some_at_once, tried
from bearlake_operator.handlers.notes import Notes, now_text
from bearlake_operator.handlers.world import World
from bearlake_operator.kube import KINDS, Kube
from bearlake_operator.reconcile import status
from bearlake_operator.reconcile.claims import FINALIZER, Claim, Key

log = logging.getLogger(__name__)


def is_held(resource: Resource) -> bool:
    """Whether a Stream has the finalizer."""
    return FINALIZER in resource["metadata"].get("finalizers", ())


def is_held_for_nothing(resource: Resource) -> bool:
    """Whether the finalizer holds a Stream whose records shall stay: `deletionPolicy` was Delete once."""
    return is_held(resource) and not api.stream_spec(resource).is_deleted_with_resource


class Finalizers:
    """Puts and takes away."""

    def __init__(self, kube: Kube, world: World, notes: Notes) -> None:
        self._kube = kube
        self._world = world
        self._notes = notes

    async def hold(self, live: Sequence[Resource], found: Mapping[Key, Claim]) -> None:
        """Put the finalizer on Streams whose deletion means that of their records. Raises `Unavailable`, `Invalid`, `Conflict`."""
        claimed = [(one, found[api.key_of(one)]) for one in live if not is_held(one)]
        owners = [one for one, claim in claimed if claim.is_owner and claim.spec.is_deleted_with_resource]
        await some_at_once(lambda one: self._set_finalizers(one, [FINALIZER]), owners)

    async def let_go(self, held: Sequence[Resource]) -> None:
        """Take the finalizer away. Raises `Unavailable`, `Invalid`, `Conflict`."""
        await some_at_once(lambda one: self._set_finalizers(one, []), held)

    async def delete(
        self,
        client: AdminClient,
        doomed: Sequence[Resource],
        found: Mapping[Key, Claim],
        observed: Mapping[str, ObservedStream],
    ) -> list[str]:
        """Delete the streams of resources that go with them, then let the resources go; returns what went wrong."""
        layer = doomed[0]["spec"].get("dataLayer", "default") if doomed else ""
        claimed = {claim.spec.name for claim in found.values() if claim.spec.data_layer == layer}
        names = {
            spec.name: api.key_of(one)
            for one in doomed
            # Only the incarnation that this resource knew, and not one that another Stream has taken over.
            if (spec := api.stream_spec(one)).name not in claimed
            and spec.name in observed
            and observed[spec.name].id == one.get("status", {}).get("streamId")
        }
        problems: dict[str, str] = {}
        if names:
            log.info("deleting streams", extra={"data_layer": layer, "streams": list(names)})
            try:
                problems = await client.delete({name: observed[name].id for name in names})
            except OperatorError as error:
                problems = dict.fromkeys(names, str(error))
        kept = {names[name]: problem for name, problem in problems.items()}
        return [
            *(f"{name} is not deleted: {problem}" for name, problem in problems.items()),
            *await tried(self.show_kept(kept)),
            *await tried(self.let_go([one for one in doomed if api.key_of(one) not in kept])),
        ]

    async def show_kept(self, problems: Mapping[Key, str]) -> None:
        """Let Streams that are held until their records are deleted say why they still are. Raises `Unavailable`, `Invalid`."""
        now = now_text()
        for (namespace, name), problem in problems.items():
            resource = self._world.get("Stream", namespace, name)
            if resource is not None:
                await self._notes.show(resource, status.leaving(resource, problem, now))

    async def abandon(self, going: Sequence[Resource]) -> None:
        """Let resources go whose data layer is not known any more, and say what of them stays."""
        for one in [one for one in going if not is_held_for_nothing(one)]:
            layer = one["spec"].get("dataLayer", "default")
            note = f"There is no data layer {layer!r}: the Stream goes, its records stay where they are."
            await self._notes.tell(one, "RecordsKept", note, is_bad=True)
        await self.let_go(going)

    async def _set_finalizers(self, resource: Resource, finalizers: Sequence[str]) -> None:
        metadata = resource["metadata"]
        body = {
            "apiVersion": KINDS["Stream"].api_version,
            "kind": "Stream",
            "metadata": {
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
                "finalizers": list(finalizers),
            },
        }
        try:
            after = await self._kube.apply(body)
        except OperatorError:
            if self._world.get("Stream", metadata["namespace"], metadata["name"]) is None:
                return  # it has gone meanwhile
            raise
        if after["metadata"].get("deletionTimestamp") is None:
            self._world.put("Stream", after)
