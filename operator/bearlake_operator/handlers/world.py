"""What is known of the cluster, by kind, namespace and name. Watches and lists tell; workers read and are woken.

News may come late and twice: a resource is replaced by a newer version only. Source: KEP-5504 (resource versions are comparable).
Workers are woken by what they may have to act upon: a status that they have written themselves would wake them again and again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bearlake_operator import api
from bearlake_operator.kube import Listing, Resource
from bearlake_operator.reconcile.claims import Key

_STATUS_SIGNS: Mapping[str, tuple[str, ...]] = {
    "Deployment": ("replicas", "readyReplicas", "updatedReplicas", "conditions"),
    "Service": ("loadBalancer",),
}
"""What of a status others write and workers read."""
_METADATA_SIGNS = ("uid", "labels", "annotations", "finalizers", "deletionTimestamp", "ownerReferences")


class World:
    """The known resources. Used from the event loop only."""

    def __init__(self) -> None:
        self._known: dict[str, dict[Key, Resource]] = {}
        self._gone: dict[str, dict[Key, int]] = {}
        self._listed: dict[str, int] = {}
        """The version of the last list: late news may be as old as that, but not older."""
        self._listeners: list[Callable[[str, Resource], None]] = []

    def on_change(self, listener: Callable[[str, Resource], None]) -> None:
        """Call `listener` with the kind and the resource (as it is, or as it was before it went) after every change that may matter."""
        self._listeners.append(listener)

    def of(self, kind: str) -> Sequence[Resource]:
        """All known resources of a kind."""
        return list(self._known.get(kind, {}).values())

    def get(self, kind: str, namespace: str, name: str) -> Resource | None:
        """A resource, None when it is not known."""
        return self._known.get(kind, {}).get((namespace, name))

    def put(self, kind: str, resource: Resource) -> bool:
        """A resource exists in this version; whether that was news."""
        known, key = self._known.setdefault(kind, {}), api.key_of(resource)
        old = known.get(key)
        newest = max(_version(old) if old else 0, self._gone.get(kind, {}).get(key, 0))
        if newest and _version(resource) <= newest:
            return False
        known[key] = resource
        if old is None or _signs(kind, old) != _signs(kind, resource):
            self._tell(kind, resource)
        return True

    def remove(self, kind: str, resource: Resource) -> bool:
        """A resource has gone, last seen in this version; whether that was news."""
        key = api.key_of(resource)
        old = self._known.get(kind, {}).get(key)
        if old is None or _version(old) > _version(resource):
            return False
        del self._known[kind][key]
        self._gone.setdefault(kind, {})[key] = _version(resource)
        self._tell(kind, old)
        return True

    def listed(self, kind: str, found: Listing, namespace: str | None) -> int:
        """All resources of a kind in the namespace (None: in all); returns how many changes were news.

        Those that are not in the list have gone, unless they are newer than the list.
        """
        news = sum(self.put(kind, resource) for resource in found.resources)
        present = {api.key_of(resource) for resource in found.resources}
        for key, old in list(self._known.get(kind, {}).items()):
            is_covered = namespace in (None, key[0]) and _version(old) <= found.version
            if is_covered and key not in present:
                news += self.remove(kind, old)
        gone, limit = self._gone.get(kind, {}), self._listed.get(kind, 0)
        self._gone[kind] = {key: version for key, version in gone.items() if version > limit}
        self._listed[kind] = found.version
        return news

    def _tell(self, kind: str, resource: Resource) -> None:
        for listener in self._listeners:
            listener(kind, resource)


def _version(resource: Resource) -> int:
    return int(resource["metadata"]["resourceVersion"])


def _signs(kind: str, resource: Resource) -> list[Any]:
    """What of a resource a worker may have to act upon."""
    metadata, status = resource["metadata"], resource.get("status", {})
    rest = {key: value for key, value in resource.items() if key not in ("metadata", "status")}
    return [
        rest,
        [metadata.get(sign) for sign in _METADATA_SIGNS],
        [status.get(sign) for sign in _STATUS_SIGNS.get(kind, ())],
    ]
