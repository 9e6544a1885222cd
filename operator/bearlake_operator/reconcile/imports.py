"""Which Streams are imported, and from where: those that name a source, until they are promoted (decision 275).

A Stream is promoted when `spec.source` is removed: the operator then unsets `import.source`, as it unsets every config that the resource
named before and names no longer (`stream_changes.py`). A stream is not among the topics of the import's pod once it is promoted, and before
the Stream's access rules are in force.
"""

from collections.abc import Iterable, Mapping

from bearlake_operator import api
from bearlake_operator.api import Resource
from bearlake_operator.reconcile.claims import Claim, NamespacedName
from bearlake_operator.settings import Settings

PROMOTED = "Promoted"
IMPORTING = "Importing"


def by_source(
    settings: Settings, resources: Iterable[Resource], found: Mapping[NamespacedName, Claim]
) -> Mapping[tuple[str, str], list[str]]:
    """The streams to import, by data layer and source."""
    wanted: dict[tuple[str, str], list[str]] = {}
    for resource in resources:
        claim = found.get(api.namespaced_name(resource))
        if claim is None or not claim.is_owner or not claim.spec.source:
            continue
        spec = claim.spec
        if settings.unknown_data_layer(spec.data_layer) or settings.refused_source(claim.key[0], spec):
            continue
        if is_promoted(resource) or (spec.access and not _has_access(resource)):
            continue
        wanted.setdefault((spec.data_layer, spec.source), []).append(spec.name)
    return wanted


def is_promoted(resource: Resource) -> bool:
    """Whether the status says that the stream is not imported any more."""
    return bool(resource.get("status", {}).get("import", {}).get("state") == PROMOTED)


def _has_access(resource: Resource) -> bool:
    conditions = resource.get("status", {}).get("conditions", ())
    return any(found["type"] == "AccessSynced" and found["status"] == "True" for found in conditions)
