"""Which Stream owns a name of a data layer: the oldest that claims it. The others say so and do nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bearlake_operator import api
from bearlake_operator.api import Resource, StreamSpec

Key = tuple[str, str]
"""Namespace and name of a resource."""

FINALIZER = "bearlake.dev/stream"
"""Holds a Stream that goes with its records until these are deleted."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A Stream's claim to its name; `owner` is the Stream that has it, itself if it does."""

    key: Key
    spec: StreamSpec
    owner: Key

    @property
    def is_owner(self) -> bool:
        """Whether the name is this Stream's."""
        return self.owner == self.key


def decide(streams: Iterable[Resource]) -> Mapping[Key, Claim]:
    """The claims of all Streams that are not being deleted. Raises `Invalid` for a spec that no schema would let in."""
    owners: dict[tuple[str, str], Key] = {}
    claims: dict[Key, Claim] = {}
    for resource in api.oldest_first([one for one in streams if not api.is_going(one)]):
        spec, key = api.stream_spec(resource), api.key_of(resource)
        owner = owners.setdefault((spec.data_layer, spec.name), key)
        claims[key] = Claim(key, spec, owner)
    return claims


def leaving(streams: Iterable[Resource]) -> list[StreamSpec]:
    """What Streams say that are being deleted and are still held: without servers their records could not be deleted."""
    held = [one for one in streams if FINALIZER in one["metadata"].get("finalizers", ())]
    return [api.stream_spec(one) for one in held if api.is_going(one)]
