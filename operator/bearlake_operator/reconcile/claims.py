"""Which Stream owns a stream name of a data layer: the oldest one that claims it. The others report the conflict and change nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bearlake_operator import api
from bearlake_operator.api import Resource, StreamSpec

NamespacedName = tuple[str, str]
"""Namespace and name of a resource."""

FINALIZER = "bearlake.dev/stream"
"""Keeps a Stream with `deletionPolicy: Delete` until its records are deleted."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A Stream's claim to its stream name. `owner` is the Stream that owns the name, possibly itself."""

    key: NamespacedName
    spec: StreamSpec
    owner: NamespacedName

    @property
    def is_owner(self) -> bool:
        """Whether this Stream owns the name."""
        return self.owner == self.key


def resolve(streams: Iterable[Resource]) -> Mapping[NamespacedName, Claim]:
    """The claims of all Streams that are not being deleted. Raises `Invalid` for a spec that the CRD does not admit."""
    owners: dict[tuple[str, str], NamespacedName] = {}
    claims: dict[NamespacedName, Claim] = {}
    for resource in api.oldest_first([stream for stream in streams if not api.is_terminating(stream)]):
        spec, key = api.stream_spec(resource), api.namespaced_name(resource)
        owner = owners.setdefault((spec.data_layer, spec.name), key)
        claims[key] = Claim(key, spec, owner)
    return claims


def terminating(streams: Iterable[Resource]) -> list[StreamSpec]:
    """The specs of terminating Streams that still have the finalizer: their records can only be deleted while servers run."""
    held = [stream for stream in streams if FINALIZER in stream["metadata"].get("finalizers", ())]
    return [api.stream_spec(stream) for stream in held if api.is_terminating(stream)]
