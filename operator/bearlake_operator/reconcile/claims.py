"""Which Stream owns a stream name of a data layer: the oldest one whose namespace may use it. The others report why, and change nothing."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bearlake_operator import api
from bearlake_operator.api import Resource, StreamSpec

NamespacedName = tuple[str, str]
"""Namespace and name of a resource."""

FINALIZER = "bearlake.dev/stream"
"""Keeps a Stream until its access rules, and with `deletionPolicy: Delete` its records, are deleted."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A Stream's claim to its stream name. `owner` is the Stream that owns the name, possibly itself.

    `refusal` says why the Stream's namespace may not use the name; empty: it may.
    """

    key: NamespacedName
    spec: StreamSpec
    owner: NamespacedName
    refusal: str = ""

    @property
    def is_owner(self) -> bool:
        """Whether this Stream owns the name."""
        return self.owner == self.key and not self.refusal


def resolve(
    streams: Iterable[Resource], refused_name: Callable[[str, str], str] = lambda namespace, name: ""
) -> Mapping[NamespacedName, Claim]:
    """The claims of all Streams that are not being deleted. Raises `Invalid` for a spec that the CRD does not admit.

    `refused_name` says why a namespace may not use a stream name; a refused Stream owns nothing, however old it is.
    """
    owners: dict[tuple[str, str], NamespacedName] = {}
    claims: dict[NamespacedName, Claim] = {}
    for resource in api.oldest_first([stream for stream in streams if not api.is_terminating(stream)]):
        spec, key = api.stream_spec(resource), api.namespaced_name(resource)
        if refusal := refused_name(key[0], spec.name):
            claims[key] = Claim(key, spec, key, refusal)
            continue
        owner = owners.setdefault((spec.data_layer, spec.name), key)
        claims[key] = Claim(key, spec, owner)
    return claims


def terminating(streams: Iterable[Resource]) -> list[StreamSpec]:
    """The specs of terminating Streams that still have the finalizer: what belongs to them can only be deleted while servers run."""
    held = [stream for stream in streams if FINALIZER in stream["metadata"].get("finalizers", ())]
    return [api.stream_spec(stream) for stream in held if api.is_terminating(stream)]
