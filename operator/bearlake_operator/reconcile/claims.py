"""Which Stream owns a stream name of a data layer: the oldest one whose namespace may use it. The others report why, and change nothing.

Creation times have a resolution of one second. Of Streams of the same second, the one that already owns the name keeps it: a later Stream
must not take a name, with its records and access rules, by its own name.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bearlake_operator import api
from bearlake_operator.api import Resource, StreamSpec
from bearlake_operator.reconcile import access

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

    `refused_name` says why a namespace may not use a stream name; a refused Stream owns nothing, however old it is. Of Streams of the same
    second, the one whose status reports `Claimed` comes first, then namespace and name decide.
    """
    owners: dict[tuple[str, str], NamespacedName] = {}
    claims: dict[NamespacedName, Claim] = {}
    live = api.oldest_first([stream for stream in streams if not api.is_terminating(stream)])
    for resource in sorted(live, key=lambda stream: (api.created(stream), not has_claimed(stream))):
        spec, key = api.stream_spec(resource), api.namespaced_name(resource)
        if refusal := refused_name(key[0], spec.name):
            claims[key] = Claim(key, spec, key, refusal)
            continue
        owner = owners.setdefault((spec.data_layer, spec.name), key)
        claims[key] = Claim(key, spec, owner)
    return claims


def has_claimed(resource: Resource) -> bool:
    """Whether a Stream's status reports that it owns its stream name. The name is immutable, so the generation does not matter."""
    conditions = resource.get("status", {}).get("conditions", ())
    return any(found["type"] == "Claimed" and found["status"] == "True" for found in conditions)


def terminating(
    streams: Iterable[Resource], refused_name: Callable[[str, str], str] = lambda namespace, name: ""
) -> list[StreamSpec]:
    """The specs of terminating Streams whose finalizer waits for servers: what belongs to them can only be deleted while servers run."""
    held = [stream for stream in streams if FINALIZER in stream["metadata"].get("finalizers", ())]
    return [
        api.stream_spec(stream)
        for stream in held
        if api.is_terminating(stream) and not owns_nothing(stream, refused_name)
    ]


def owns_nothing(resource: Resource, refused_name: Callable[[str, str], str]) -> bool:
    """Whether a Stream is refused, and nothing in the data layer goes with it: its records stay, and no access rules belong to it.

    Raises `Invalid`.
    """
    refusal = refused_name(resource["metadata"]["namespace"], api.stream_spec(resource).name)
    return bool(refusal) and not access.listed(resource)
