"""The known resources of the cluster, by kind, namespace and name. Watches and lists write to it; a change wakes the controllers.

Updates may arrive late and more than once, so only a newer version replaces a resource.
Source: KEP-5504 (resource versions are comparable).

A change wakes the controllers only if they may have to act on it. In particular, a status that a controller wrote itself does not wake it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bearlake_operator import api
from bearlake_operator.kube import Listing, Resource
from bearlake_operator.reconcile.claims import NamespacedName

_WAKING_STATUS_FIELDS: Mapping[str, tuple[str, ...]] = {
    "Deployment": ("replicas", "readyReplicas", "updatedReplicas", "conditions"),
    "Service": ("loadBalancer",),
}
"""Status fields that other components write and controllers read."""
_WAKING_METADATA_FIELDS = ("uid", "labels", "annotations", "finalizers", "deletionTimestamp", "ownerReferences")


class ResourceCache:
    """The known resources. Used from the event loop only."""

    def __init__(self) -> None:
        self._resources: dict[str, dict[NamespacedName, Resource]] = {}
        self._deleted: dict[str, dict[NamespacedName, int]] = {}
        """The version at which each recently deleted resource was last seen, so that a late update does not bring it back."""
        self._list_versions: dict[str, int] = {}
        """The version of the last list of each kind. A late update may be as old as that list, but not older."""
        self._listeners: list[Callable[[str, Resource], None]] = []

    def on_change(self, listener: Callable[[str, Resource], None]) -> None:
        """Call `listener` with the kind and the resource after every change that may need action.

        For a deleted resource, it gets the last known version.
        """
        self._listeners.append(listener)

    def list(self, kind: str) -> Sequence[Resource]:
        """All known resources of a kind."""
        return list(self._resources.get(kind, {}).values())

    def get(self, kind: str, namespace: str, name: str) -> Resource | None:
        """A resource, None if it is not known."""
        return self._resources.get(kind, {}).get((namespace, name))

    def put(self, kind: str, resource: Resource) -> bool:
        """Store a resource unless a version at least as new is known. Returns True if the cache changed."""
        known, key = self._resources.setdefault(kind, {}), api.namespaced_name(resource)
        old = known.get(key)
        newest = max(_version(old) if old else 0, self._deleted.get(kind, {}).get(key, 0))
        if newest and _version(resource) <= newest:
            return False
        known[key] = resource
        if old is None or _waking_fields(kind, old) != _waking_fields(kind, resource):
            self._notify(kind, resource)
        return True

    def remove(self, kind: str, resource: Resource) -> bool:
        """Forget a deleted resource, given its last version. Returns True if the cache changed."""
        key = api.namespaced_name(resource)
        old = self._resources.get(kind, {}).get(key)
        if old is None or _version(old) > _version(resource):
            return False
        del self._resources[kind][key]
        self._deleted.setdefault(kind, {})[key] = _version(resource)
        self._notify(kind, old)
        return True

    def replace(self, kind: str, listing: Listing, namespace: str | None) -> int:
        """Merge a list of all resources of a kind in the namespace (None: in all namespaces). Returns the number of changes.

        A known resource that is missing from the list was deleted, unless it is newer than the list.
        """
        change_count = sum(self.put(kind, resource) for resource in listing.resources)
        listed = {api.namespaced_name(resource) for resource in listing.resources}
        for key, old in [*self._resources.get(kind, {}).items()]:
            is_covered = namespace in (None, key[0]) and _version(old) <= listing.version
            if is_covered and key not in listed:
                change_count += self.remove(kind, old)
        deleted, oldest = self._deleted.get(kind, {}), self._list_versions.get(kind, 0)
        self._deleted[kind] = {key: version for key, version in deleted.items() if version > oldest}
        self._list_versions[kind] = listing.version
        return change_count

    def _notify(self, kind: str, resource: Resource) -> None:
        for listener in self._listeners:
            listener(kind, resource)


def _version(resource: Resource) -> int:
    return int(resource["metadata"]["resourceVersion"])


def _waking_fields(kind: str, resource: Resource) -> Sequence[Any]:
    """The parts of a resource whose change wakes the controllers."""
    metadata, status = resource["metadata"], resource.get("status", {})
    rest = {key: value for key, value in resource.items() if key not in ("metadata", "status")}
    return [
        rest,
        [metadata.get(field) for field in _WAKING_METADATA_FIELDS],
        [status.get(field) for field in _WAKING_STATUS_FIELDS.get(kind, ())],
    ]
